"""The verb `headway tune`, and its form `run`.

It has three forms, each with a parser of its own: `run PROGRAM`, `serve APP` and `SERVER`, which
`split_arguments` gives the name `server`.
"""

from __future__ import annotations

import argparse
import re

from headway.commands import run as run_verb
from headway.commands import tune_application, tune_server
from headway.commands.run import Program
from headway.commands.tune_options import (
    WITH_VALUE,
    add_common_options,
    chosen_candidates,
    conduct,
    files_of,
    make_trials,
    read_goal,
)
from headway.errors import CommandError
from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.programs import signals
from headway.tune.goals import OF_PROGRAM, TIME, Figure, Goal, metric
from headway.tune.program import ProgramRuns
from headway.tune.setting import Setting

FORMS = ("run", "serve", "server")
RUN_FOR_S = 120.0
HELP = ("-h", "--help")


DESCRIPTION = """\
Finds the policy and the switch interval that suit a program or a server, by experiment. Each round
measures the present setting and every candidate, in random order; a candidate's effect is the ratio
to the present setting of the same round. The intervals of the ratios are valid after every round
(95 % for all together), so the experiment stops as soon as it knows enough, with one of three
results:

  winner      the interval of a candidate is better than the present setting by more than --margin
  equivalent  no candidate is better by more than --margin
  undecided   the time of --for is over before

FORM is one of these. `headway tune SERVER` is short for `headway tune server SERVER`.
"""
RUN_DESCRIPTION = """\
Runs PROGRAM again and again, as `headway run --follow` would, and compares the time that it takes,
or the number that it prints. It also shows CPU time and memory. The present setting is the policy
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
    for name, purpose, prepare in (
        ("run", "tune a program that ends", prepare_run),
        ("serve", "tune an application, with a server and a load", tune_application.prepare_serve),
        ("server", "tune a server that runs", tune_server.prepare_server),
    ):
        form = forms.add_parser(
            name,
            help=purpose,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        prepare(form)


def prepare_run(parser: argparse.ArgumentParser) -> None:
    parser.description = RUN_DESCRIPTION
    parser.epilog = RUN_EXAMPLES
    parser.usage = (
        "headway tune run [--metric REGEX [--smaller]] [--goal GOAL] [--margin PERCENT]\n"
        "                        [--for S] [--policy P...] [--switch-interval S...] [--json FILE]\n"
        "                        [--html FILE] [PYTHON OPTION...]\n"
        "                        (SCRIPT | -m MODULE | -c CODE) [ARG...]"
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


def split_arguments(arguments: list[str]) -> tuple[list[str], Program | list[str] | None]:
    """Cuts off the program of `run`, or what `serve` passes to the server after `--`."""
    if arguments[:1] == ["run"]:
        own, program = run_verb.split_arguments(arguments[1:], ("--metric", *WITH_VALUE))
        return ["run", *own], program
    if arguments[:1] == ["serve"]:
        place = arguments.index("--") if "--" in arguments else len(arguments)
        return arguments[:place], arguments[place + 1 :]
    if arguments and arguments[0] not in (*FORMS, *HELP):
        arguments = ["server", *arguments]
    return arguments, None


def run(options: argparse.Namespace) -> int:
    signals.watch()
    if options.form == "run":
        return tune_program(options)
    if options.form == "serve":
        return tune_application.run(options)
    return tune_server.run(options)


def tune_program(options: argparse.Namespace) -> int:
    program: Program | None = getattr(options, "program", None)
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
    goal = Goal(TIME if options.metric is None else figures[0])
    if options.goal is not None:
        goal = read_goal(options.goal, figures)
    files = files_of(options)
    measure = ProgramRuns(program.words, options.metric).measure
    control = Setting("interval", DEFAULT_SWITCH_INTERVAL_S)
    chosen = chosen_candidates(options, control)
    return conduct(make_trials(options, control, chosen, goal, figures, measure), files)


def _pattern(words: str) -> re.Pattern[str]:
    try:
        return re.compile(words, re.MULTILINE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"found {words!r}; allowed: a regex ({error})") from None
