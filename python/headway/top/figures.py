"""Kinds of figures: how a value of each kind is formatted for people and for scripts.

Values come from the wire by way of JSON. A value that is missing, or has an unexpected type, is a
"-" for both. A script's cell is one word without a unit; the title of its column has the unit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from headway.report import columns, units

NOTHING = "-"
# The longest name from the wire. URLs and stacks have rows of their own with more room.
MAX_TEXT = 200
# A text of several sentences.
MAX_SENTENCES = 2_000
# The longest name in a column beside others.
MAX_NAME = 24


class Kind(NamedTuple):
    """A kind of figures. `unit` ends the title of a script's column. Numbers are aligned to the
    right."""

    human: Callable[[Any], str]
    plain: Callable[[Any], str]
    unit: str = ""
    is_number: bool = True


def number_in(value: Any) -> float | None:
    """`value` if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def text(value: Any) -> str:
    """The text on one line, and printable, so that no name can move the cursor or colour the
    screen."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, (list, tuple)):
        return ", ".join(map(text, value[:20])) or NOTHING
    if isinstance(value, float):
        return digits(value)
    return columns.name(value, MAX_TEXT)


def sentences(value: Any) -> str:
    """A text of several sentences, printable as `text` makes it."""
    return columns.name(value, MAX_SENTENCES) if isinstance(value, str) else text(value)


def word(value: Any) -> str:
    return text(value).replace(" ", "_")


def lines(value: Any, most: int = 200) -> list[str]:
    """A text of several lines, such as a stack, each printable."""
    if not isinstance(value, str):
        return []
    return [columns.name(line, MAX_TEXT) for line in value.split("\n")[:most]]


def digits(value: Any) -> str:
    """Three significant digits, with thousands separated and without trailing zeros."""
    number = number_in(value)
    if number is None:
        return NOTHING
    size = abs(number)
    decimals = 0 if size >= 99.95 or not size else 1 if size >= 9.995 else 2 if size >= 1 else 3
    shown = f"{number:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _scaled(value: Any, steps: tuple[tuple[float, str], ...]) -> str:
    number = number_in(value)
    if number is None:
        return NOTHING
    scale, unit = next((step for step in steps if abs(number) >= 0.9995 * step[0]), steps[-1])
    return f"{digits(number / scale)} {unit}".rstrip()


def seconds(value: Any) -> str:
    return units.seconds(number_in(value))


def size(value: Any) -> str:
    steps = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
    return _scaled(value, steps)


def short(value: Any) -> str:
    """ "37k", "1.2M": a count for places without room for all its digits."""
    return _scaled(value, ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))).replace(" ", "")


def cores(value: Any) -> str:
    shown = digits(value)
    return shown if shown == NOTHING else f"{shown} core" + ("" if shown == "1" else "s")


def share(value: Any) -> str:
    number = number_in(value)
    if number is None:
        return NOTHING
    return "< 0.1 %" if 0 < number < 0.0005 else f"{digits(round(100 * number, 1))} %"


def clock(value: Any) -> str:
    """The time of day in the local time zone."""
    return _strftime("%H:%M:%S", value)


def moment(value: Any) -> str:
    return _strftime("%Y-%m-%dT%H:%M:%S", value)


def _strftime(form: str, value: Any) -> str:
    number = number_in(value)
    try:
        return NOTHING if number is None else time.strftime(form, time.localtime(number))
    except (OverflowError, ValueError, OSError):
        return NOTHING


def age(value: Any) -> str:
    """A long time: "45 s", "12 min", "3 h 20 min", "4 d 2 h"."""
    number = number_in(value)
    if number is None:
        return NOTHING
    whole = max(0, round(number))
    for length, unit, smaller, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= length:
            rest = whole % length // smaller
            return f"{whole // length} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole // 60} min" if whole >= 60 else f"{whole} s"


def in_unit(value: Any, unit: Any) -> str:
    """A figure whose unit is part of the data."""
    if number_in(value) is None:
        return text(value)
    known: dict[str, Callable[[Any], str]] = {
        "s": seconds,
        "share": share,
        "cores": cores,
        "bytes": size,
        "": digits,
    }
    shown = known.get(unit if isinstance(unit, str) else "")
    return shown(value) if shown else f"{digits(value)} {text(unit)}"


def _plain(decimals: int, scale: float = 1.0) -> Callable[[Any], str]:
    def shown(value: Any) -> str:
        number = number_in(value)
        return NOTHING if number is None else f"{number * scale:.{decimals}f}"

    return shown


NAME = Kind(lambda value: columns.shorten(text(value), MAX_NAME), word, is_number=False)
TEXT = Kind(text, word, is_number=False)
COUNT = Kind(lambda value: digits(value), _plain(0))
RATE = Kind(digits, _plain(1), "_per_s")
SECONDS = Kind(seconds, _plain(3, 1e3), "_ms")
AGE = Kind(age, _plain(0), "_s")
CLOCK = Kind(clock, moment, is_number=False)
CORES = Kind(digits, _plain(3), "_cores")
SIZE = Kind(size, _plain(0), "_bytes")
SHARE = Kind(share, _plain(1, 100.0), "_pct")
