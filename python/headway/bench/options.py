"""Values of the options: what each may be, and a line for what it may not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TypeVar

from headway.errors import CommandError

MAX_THREADS = 64
MAX_SECONDS = 300
MAX_INTERVAL_S = 10
# Of a row. More only take longer.
MAX_VALUES = 10_000

Value = TypeVar("Value")


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
