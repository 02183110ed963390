"""The options, the experiment and the results that all forms of `headway tune` share."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway import json_file
from headway.errors import CommandError, reason_of
from headway.options import (
    SWITCH_INTERVAL,
    Percentage,
    Policy,
    Seconds,
    argument,
    each_once,
    refusal,
)
from headway.output import outputs
from headway.output.metadata import Circumstances
from headway.programs import interpreters, signals
from headway.programs.progress import clear_progress, progress
from headway.tune import text
from headway.tune.document import to_document
from headway.tune.goals import Figure, Figures, Goal, GoalKind
from headway.tune.setting import SWITCH_INTERVALS_S, Excluded, Setting, Shape, candidates
from headway.tune.trials import LEVEL, Measured, Trials

DEFAULT_MARGIN_PERCENT = 10.0
DURATION = Seconds(1, 86_400)
# Of the options here, those that have a value.
WITH_VALUE = ("--goal", "--margin", "--for", "--policy", "--switch-interval", "--json", "--html")


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
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the effects and charts of all blocks to FILE as an HTML page; - is stdout",
    )


def read_goal(words: str, figures: tuple[Figure, ...]) -> Goal:
    """Raises CommandError (exit code 2)."""
    kind = GoalKind(figures)
    try:
        return kind.parse(words)
    except ValueError:
        raise CommandError(f"--goal: {refusal(repr(words), kind)}", exit_code=2) from None


def chosen_candidates(
    options: argparse.Namespace, control: Setting, shapes: Sequence[Shape] = ()
) -> list[Setting]:
    """The candidates that the options choose. Raises CommandError (exit code 2) if there is
    none."""
    policies, switch_intervals_s = each_once(options.policy), each_once(options.switch_interval)
    chosen = candidates(control, policies, switch_intervals_s, shapes)
    if not chosen:
        raise CommandError(
            f"nothing to try: the only candidate is the present setting, {control}", 2
        )
    return chosen


def make_trials(
    options: argparse.Namespace,
    control: Setting,
    chosen: Sequence[Setting],
    goal: Goal,
    figures: Sequence[Figure],
    measure: Callable[[Setting, Figures | None], Measured],
    excluded: Sequence[Excluded] = (),
) -> Trials:
    return Trials(
        control,
        chosen,
        goal,
        list(dict.fromkeys((goal.figure, *figures))),
        margin=options.margin / 100,
        for_s=options.for_s,
        measure=measure,
        progress=progress,
        chance=random.Random(),
        excluded=excluded,
    )


class Files(NamedTuple):
    """The paths of --json and --html, as `json_file.check_path` returns them."""

    json: str | None
    html: str | None


def files_of(options: argparse.Namespace) -> Files:
    """Raises CommandError (exit code 2) if one of the files cannot be written."""
    json = None if options.json is None else json_file.check_path(options.json)
    html = None if options.html is None else json_file.check_path(options.html, "--html")
    outputs.check_apart({"--json": json, "--html": html}, {})
    if html is not None:
        # Needs matplotlib, and says so before anything starts.
        from headway.tune import page  # noqa: F401
    return Files(json, html)


def conduct(trials: Trials, files: Files) -> int:
    """Runs the rounds and shows what came of them, however they ended."""
    stream, style = outputs.terminal(json_file.STDOUT in files)
    circumstances = Circumstances()
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
        if files.json is not None:
            write_json(trials, files.json)
        if files.html is not None:
            from headway.tune import page

            page.write(files.html, trials, circumstances.to_dict(interpreters.this()))
    return exit_code


def write_json(trials: Trials, path: str) -> None:
    document = to_document(trials, text.advice(trials), 1 - LEVEL)
    try:
        json_file.write_json(dict(document), path)
    except OSError as error:
        raise CommandError(f"--json {path}: {reason_of(error)}") from error
