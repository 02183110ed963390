"""Parses the query string of an API request: ranges, selections, numbers.

An invalid query raises `BadQuery`, whose text names the parameter, the value found and the
allowed values. Pure except for the clock.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple
from urllib.parse import parse_qs

from headway.errors import Error
from headway.recorder.store.selection import Selection
from headway.report import columns

# The longest range: a little more than a year.
LONGEST_S = 400 * 86_400.0
MAX_PARAMETERS = 1000
# The most values of one parameter. SHOWN limits a value in an error message, because names may be
# as long as a datagram.
MAX_VALUES = 1000
SHOWN = 80


class BadQuery(Error):
    """The query is invalid. The text is one line."""


class Range(NamedTuple):
    """A range of time in seconds since 1970."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Query:
    """The parameters of one query; each may be given several times."""

    def __init__(self, query: str) -> None:
        try:
            self._values = parse_qs(
                query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="replace"
            )
        except ValueError:
            raise BadQuery(
                f"the query has more than {MAX_PARAMETERS} parameters, or is none"
            ) from None

    def texts(self, name: str) -> list[str]:
        return self._values.get(name, [])[:MAX_VALUES]

    def text(self, name: str, default: str = "") -> str:
        found = self._values.get(name)
        return found[-1] if found else default

    def number(self, name: str, default: float, least: float, most: float) -> float:
        found = self.text(name)
        if not found:
            return default
        value = read_number(found)
        if value is None or not least <= value <= most:
            raise bad(name, found, f"a number from {least:g} to {most:g}")
        return value

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        return int(self.number(name, default, least, most))

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        found = self.text(name)
        if found not in allowed:
            raise bad(name, found, ", ".join(allowed))
        return found

    def range(self, default_s: float = 300.0) -> Range:
        """The range of `from` and `to`. Negative values are relative to now, `to`'s default."""
        return read_range(self.text("from") or str(-default_s), self.text("to") or "0")

    def selection(self) -> Selection:
        pids = self.texts("pid")
        for pid in pids:
            if not pid.isascii() or not pid.isdigit() or len(pid) > 10:
                raise bad("pid", pid, "a process id")
        return Selection(
            frozenset(self.texts("host")),
            frozenset(self.texts("group")),
            frozenset(map(int, pids)),
            self.text("recording"),
        )


def read_range(start: str, end: str) -> Range:
    """The range of two times in the format of `from` and `to`; 0 is now."""
    now = time.time()
    moments = []
    for name, text in (("from", start), ("to", end)):
        value = read_number(text)
        if value is None:
            raise bad(name, text, "seconds since 1970, or a negative number: seconds before now")
        moments.append(now + value if value <= 0 else value)
    found = Range(*moments)
    if not 0 < found.seconds <= LONGEST_S:
        raise BadQuery(
            f"from {start} to {end}: the range must have a length, of "
            f"{LONGEST_S / 86_400:.0f} days at most"
        )
    return found


def read_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def bad(name: str, found: str, allowed: str) -> BadQuery:
    return BadQuery(f"{name}: found {columns.name(found, SHOWN)!r}; allowed: {allowed}")
