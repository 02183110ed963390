"""The options that choose rows of an experiment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TypeVar

from headway.errors import CommandError
from headway.options import SWITCH_INTERVAL, Seconds, Shape, Whole, argument
from headway_lab.experiment import MODES

MAX_THREADS = 64
# The most values of a row. More of them only take longer.
MAX_VALUES = 10_000
THREAD_COUNT = Whole(0, MAX_THREADS)
VALUE_COUNT = Whole(1, MAX_VALUES)
DURATION = Seconds(0.001, 300)

Value = TypeVar("Value")


def add_row_options(parser: argparse.ArgumentParser, policy_help: str, mode_help: str) -> None:
    """Adds the options. Each may be given several times, and is None if it is not given."""
    parser.add_argument("--policy", action="append", metavar="P", help=policy_help)
    parser.add_argument(
        "--switch-interval",
        action="append",
        type=argument(SWITCH_INTERVAL),
        metavar="S",
        help="in seconds, or with a unit, such as 5ms; may be given several times (default: the "
        "experiment's own)",
    )
    parser.add_argument(
        "--threads",
        action="append",
        type=argument(THREAD_COUNT),
        metavar="N",
        help="how many threads compute; may be given several times (default: the experiment's own)",
    )
    parser.add_argument(
        "--workload",
        action="append",
        metavar="W",
        help="the workload, in experiments that have several; may be given several times "
        "(default: all)",
    )
    parser.add_argument("--mode", action="append", choices=MODES, help=mode_help)
    parser.add_argument(
        "--shape",
        action="append",
        type=argument(Shape(MAX_THREADS)),
        metavar="PxT",
        help="wsgi: processes x threads; may be given several times (default: 10x1, 2x5, 1x10)",
    )


def named(name: str, known: Mapping[str, Value], what: str) -> Value:
    if name not in known:
        raise CommandError(f"{what} {name!r}: there are {', '.join(known)}", exit_code=2)
    return known[name]
