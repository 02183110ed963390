"""The options that choose rows, and values of options: what each may be, and a line for what it may
not."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headway.bench.experiment import MODES
from headway.errors import CommandError

MAX_THREADS = 64
MAX_SECONDS = 300
MAX_INTERVAL_S = 10
# Of a row. More only take longer.
MAX_VALUES = 10_000

Value = TypeVar("Value")


def add_row_options(parser: argparse.ArgumentParser, policy_help: str, mode_help: str) -> None:
    """Each may be given again, and is None if it is not given."""
    parser.add_argument("--policy", action="append", metavar="P", help=policy_help)
    parser.add_argument(
        "--switch-interval",
        action="append",
        type=interval_s,
        metavar="S",
        help="in seconds; may be given again (default: the experiment's own)",
    )
    parser.add_argument(
        "--threads",
        action="append",
        type=thread_count,
        metavar="N",
        help="how many threads compute; may be given again (default: the experiment's own)",
    )
    parser.add_argument(
        "--workload",
        action="append",
        metavar="W",
        help="of the experiments that have several; may be given again (default: all)",
    )
    parser.add_argument("--mode", action="append", choices=MODES, help=mode_help)
    parser.add_argument(
        "--shape",
        action="append",
        type=shape,
        metavar="PxT",
        help="wsgi: processes x threads; may be given again (default: 10x1, 2x5, 1x10)",
    )


def each_once(values: Iterable[Value] | None) -> tuple[Value, ...] | None:
    """In the order given; None without any."""
    return tuple(dict.fromkeys(values)) if values else None


def named(name: str, known: Mapping[str, Value], what: str) -> Value:
    if name not in known:
        raise CommandError(f"{what} {name!r}: there are {', '.join(known)}", exit_code=2)
    return known[name]


def at_least_one(text: str) -> int:
    return whole_number(text, 1, MAX_VALUES)


def thread_count(text: str) -> int:
    return whole_number(text, 0, MAX_THREADS)


def whole_number(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; it is a whole number from {least} to {most:,}"
        )
    return int(text)


def seconds(text: str) -> float:
    return number_up_to(text, MAX_SECONDS)


def interval_s(text: str) -> float:
    return number_up_to(text, MAX_INTERVAL_S)


def number_up_to(text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"found {text!r}; it is seconds, above 0 up to {most}")
    return value


def percentage(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"found {text!r}; it is a percentage from 0 to 1000")
    return value


def shape(text: str) -> tuple[int, int]:
    """PxT."""
    processes, cross, threads = text.partition("x")
    if not cross:
        raise argparse.ArgumentTypeError(f"found {text!r}; it is PROCESSESxTHREADS, such as 2x5")
    return whole_number(processes, 1, MAX_THREADS), whole_number(threads, 1, MAX_THREADS)
