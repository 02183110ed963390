"""The verb `headway tune`: what is tuned, by which goal, for how long, and where results go.

It has three forms, each with a parser of its own: `run PROGRAM`, `serve APP` and `SERVER`.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable

from headway import json_file
from headway.commands import run as run_verb
from headway.commands.run import Program as ProgramWords
from headway.errors import CommandError, reason_of
from headway.experiments import signals
from headway.experiments.options import each_once
from headway.experiments.output import outputs
from headway.experiments.processes import DEFAULT_SWITCH_INTERVAL_S
from headway.experiments.progress import clear_progress, progress
from headway.options import SWITCH_INTERVAL, Percentage, Policy, Seconds, argument
from headway.tune import text
from headway.tune.document import to_document
from headway.tune.goals import OF_PROGRAM, TIME, Figure, Figures, Goal, GoalKind, metric
from headway.tune.program import Program
from headway.tune.setting import SWITCH_INTERVALS_S, Setting, candidates
from headway.tune.trials import LEVEL, Measured, Trials

FORMS = ("run",)
RUN_FOR_S = 120.0
DEFAULT_MARGIN_PERCENT = 10.0
DURATION = Seconds(1, 86_400)
OPTIONS_WITH_VALUE = (
    "--metric",
    "--goal",
    "--for",
    "--margin",
    "--policy",
    "--switch-interval",
    "--json",
)

DESCRIPTION = """\
Finds the policy and the switch interval that suit a program, by experiment. Each round measures the
present setting and every candidate, in random order; a candidate's effect is the ratio to the
present setting of the same round. The intervals of the ratios are valid after every round (95 % for
all together), so the experiment stops as soon as it knows enough, with one of three results:

  winner      the interval of a candidate is better than the present setting by more than --margin
  equivalent  no candidate is better by more than --margin
  undecided   the time of --for is over before
"""
RUN_DESCRIPTION = """\
Runs PROGRAM again and again, as `headway run --follow` would, and compares the time that it takes,
or the number that it prints. CPU time and memory stand beside it. The present setting is the policy
interval at 5 ms, CPython's own. What the program prints is not shown.
"""
RUN_EXAMPLES = """\
examples:
  headway tune run batch.py                              the least time
  headway tune run --goal cpu -m job --all               the least CPU time
  headway tune run --metric 'requests/s: ([0-9.]+)' load_test.py
  headway tune run --metric 'p99: ([0-9.]+) ms' --smaller load_test.py
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    forms = parser.add_subparsers(metavar="FORM", required=True, dest="form")
    run_form = forms.add_parser(
        "run",
        help="tune a program that ends",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    prepare_run(run_form)


def prepare_run(parser: argparse.ArgumentParser) -> None:
    parser.description = RUN_DESCRIPTION
    parser.epilog = RUN_EXAMPLES
    parser.usage = (
        "headway tune run [--metric REGEX [--smaller]] [--goal GOAL] [--margin PERCENT]\n"
        "                        [--for S] [--policy P...] [--switch-interval S...] [--json FILE]\n"
        "                        [PYTHON OPTION...] (SCRIPT | -m MODULE | -c CODE) [ARG...]"
    )
    parser.add_argument(
        "--metric",
        metavar="REGEX",
        type=_pattern,
        help="compare the number that the program prints on stdout: the first group of the last "
        "match, or the whole match; larger is better",
    )
    parser.add_argument(
        "--smaller", action="store_true", help="the number of --metric is better if it is smaller"
    )
    parser.add_argument(
        "--goal",
        metavar="GOAL",
        help="what decides: metric, time or cpu; floors may follow, as in 'time, cpu >= 0.9': CPU "
        "time may then be at most 1 / 0.9 of the present (default: metric with --metric, else "
        "time)",
    )
    add_common_options(parser, RUN_FOR_S)


def add_common_options(parser: argparse.ArgumentParser, for_s: float) -> None:
    parser.add_argument(
        "--margin",
        metavar="PERCENT",
        type=argument(Percentage(1000)),
        default=DEFAULT_MARGIN_PERCENT,
        help="by how much a setting must be better to win (default: %(default)g)",
    )
    parser.add_argument(
        "--for",
        dest="for_s",
        metavar="S",
        type=argument(DURATION),
        default=for_s,
        help="the longest time, in seconds or with a unit, such as 10m (default: %(default)g)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="P",
        type=argument(Policy()),
        help="a policy to try; may be given several times (default: all)",
    )
    shown = " and ".join(f"{each * 1e3:g}ms" for each in SWITCH_INTERVALS_S)
    parser.add_argument(
        "--switch-interval",
        action="append",
        metavar="S",
        type=argument(SWITCH_INTERVAL),
        help="a switch interval to try, in seconds, or with a unit, such as 5ms; may be given "
        f"several times (default: the present one, {shown})",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write everything to FILE as JSON; - is stdout"
    )


def split_arguments(arguments: list[str]) -> tuple[list[str], ProgramWords | None]:
    if arguments[:1] != ["run"]:
        return arguments, None
    own, program = run_verb.split_arguments(arguments[1:], OPTIONS_WITH_VALUE)
    return ["run", *own], program


def run(options: argparse.Namespace) -> int:
    json_path = None if options.json is None else json_file.check_path(options.json)
    return tune_program(options, json_path)


def tune_program(options: argparse.Namespace, json_path: str | None) -> int:
    program: ProgramWords | None = getattr(options, "program", None)
    if program is None:
        raise CommandError("nothing to run: give a SCRIPT, -m MODULE or -c CODE", exit_code=2)
    if options.smaller and options.metric is None:
        raise CommandError("--smaller: there is no --metric to turn round", exit_code=2)
    run_verb.check_follow_file(
        run_verb.site_directories(program.interpreter_options), program.interpreter_options
    )
    figures: tuple[Figure, ...] = OF_PROGRAM
    if options.metric is not None:
        figures = (metric(options.smaller), *OF_PROGRAM)
    goal = Goal(figures[0] if options.metric is not None else TIME)
    if options.goal is not None:
        try:
            goal = GoalKind(figures).parse(options.goal)
        except ValueError:
            allowed = GoalKind(figures).allowed
            raise CommandError(f"--goal: found {options.goal!r}; allowed: {allowed}", 2) from None
    measure = Program(program.words, options.metric).measure
    control = Setting("interval", DEFAULT_SWITCH_INTERVAL_S)
    trials = make_trials(options, control, goal, measure)
    trials.figures = list(dict.fromkeys((goal.figure, *figures)))
    return conduct(trials, json_path)


def make_trials(
    options: argparse.Namespace,
    control: Setting,
    goal: Goal,
    measure: Callable[[Setting, Figures | None], Measured],
) -> Trials:
    chosen = candidates(control, each_once(options.policy), each_once(options.switch_interval))
    if not chosen:
        raise CommandError(
            f"nothing to try: the only candidate is the present setting, {control}", 2
        )
    return Trials(
        control,
        chosen,
        goal,
        OF_PROGRAM,
        margin=options.margin / 100,
        for_s=options.for_s,
        measure=measure,
        progress=progress,
        chance=random.Random(),
    )


def conduct(trials: Trials, json_path: str | None) -> int:
    """Runs the rounds and shows what came of them, however they ended."""
    stream, style = outputs.terminal(json_path == json_file.STDOUT)
    signals.watch()
    exit_code = 0
    try:
        trials.run()
    except KeyboardInterrupt:
        exit_code = 130
    except SystemExit as ended:
        exit_code = int(ended.code or 0)
    finally:
        clear_progress()
    with signals.held():
        outputs.say(stream, style, *text.report(trials, style))
        if json_path is not None:
            document = to_document(trials, text.advice(trials), 1 - LEVEL)
            try:
                json_file.write_json(dict(document), json_path)
            except OSError as error:
                raise CommandError(f"--json {json_path}: {reason_of(error)}") from error
    return exit_code


def _pattern(words: str) -> re.Pattern[str]:
    try:
        return re.compile(words, re.MULTILINE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"found {words!r}; allowed: a regex ({error})") from None
