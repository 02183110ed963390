"""Many threads in few rows: threads of one pattern of names add up to one row, whose `folded` is
their number.

Works on `ThreadRow` and on `ParkedThreadRow`. Pure.
"""

from __future__ import annotations

from headway.report.distributions import NS, sum_distributions, to_histogram
from headway.report.model import Histogram, ParkedThreadRow, ThreadRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    Row = TypeVar("Row", ThreadRow, ParkedThreadRow)

MAIN = "MainThread"
DIGITS = "0123456789"
# Fields that do not add up: the longest of something, and what tells rows apart.
LONGEST = ("longest_unanswered_s", "longest_unanswered_cpu_s")
APART = ("gil", "native_id", "alive", "folded")


def threads_of(row: ThreadRow | ParkedThreadRow) -> int:
    """How many threads a row stands for: the meter itself adds up those that ended, if they are
    many."""
    return row.folded or 1


def group(rows: Sequence[Row], figures: Sequence[Callable[[Row], float]], limit: int) -> list[Row]:
    """`rows`, by the figures from the greatest on; where they are more than `limit`, or the meter
    has added up some, with those of one pattern of names as one.

    For each figure the thread that has most of it keeps its row, and so does the main thread.
    """
    if len(rows) <= limit and all(threads_of(row) == 1 for row in rows):
        return _ranked(rows, figures)
    single = [row for row in rows if threads_of(row) == 1]
    apart = [row for row in single if row.name == MAIN]
    apart += [max(single, key=figure) for figure in figures if single]
    kept: dict[int, Row] = {id(row): row for row in apart}
    patterns = {pattern(row.name) for row in single}
    groups: dict[tuple[Any, str], list[Row]] = {}
    for row in rows:
        if id(row) not in kept:
            name = pattern(row.name)
            if threads_of(row) > 1 and _lost_a_number(row.name, patterns):
                name = numbered(name)
            groups.setdefault((getattr(row, "gil", None), name), []).append(row)
    made: list[Row] = [
        _sum(same, name) if same[1:] else _named(same[0], name)
        for (_, name), same in groups.items()
    ]
    return _ranked(list(kept.values()) + made, figures)


def shown(
    rows: Sequence[Row], figures: Sequence[Callable[[Row], float]], limit: int
) -> tuple[list[Row], list[Row]]:
    """The first `limit` of `rows`, which are ranked, and those that find no room. A row that has
    most of any figure is among the first, and so is the main thread's."""
    if len(rows) <= limit:
        return list(rows), []
    needed = {id(max(rows, key=figure)) for figure in figures}
    needed |= {id(row) for row in rows if row.name == MAIN and threads_of(row) == 1}
    first = list(rows[:limit])
    rest = list(rows[limit:])
    for row in [row for row in rest if id(row) in needed]:
        given_up = next((each for each in reversed(first) if id(each) not in needed), None)
        if given_up is None:
            break
        first.remove(given_up)
        rest.remove(row)
        first.append(row)
        rest.append(given_up)
    return _ranked(first, figures), rest


def pattern(name: str) -> str:
    """A thread's name with "*" for its numbers; of `threading`'s "Thread-12 (target)" for the first
    alone."""
    head, space, tail = name.partition(" ") if name.startswith("Thread-") else (name, "", "")
    made = ""
    for character in head:
        if character not in DIGITS:
            made += character
        elif made[-1:] != "*":
            made += "*"
    return made + space + tail


def _lost_a_number(name: str, patterns: set[str]) -> bool:
    """Whether the meter has taken a number off, to add up: "worker-", but neither "(ended)", which
    is its own, nor "setup"."""
    if numbered(pattern(name)) in patterns or name.startswith("Thread- "):
        return True
    return not name.startswith("(") and not name[-1:].isalnum()


def numbered(stem: str) -> str:
    """The pattern of the names that the meter adds up under `stem`, without their last number."""
    head, space, tail = stem.partition(" ") if stem.startswith("Thread-") else (stem, "", "")
    return f"{head}*{space}{tail}"


def _ranked(rows: Sequence[Row], figures: Sequence[Callable[[Row], float]]) -> list[Row]:
    return sorted(rows, key=lambda row: [-figure(row) for figure in figures])


def _named(row: Row, name: str) -> Row:
    """A row that stands alone keeps its name, unless the meter has taken its number off."""
    return row if threads_of(row) == 1 else row.replaced(name=name)


def _sum(rows: Sequence[Row], name: str) -> Row:
    names = {row.name for row in rows}
    # Rows of one name, as many executors' asyncio_0, keep that name.
    changes: dict[str, Any] = {"name": names.pop() if len(names) == 1 else name}
    for key in rows[0].FIELDS:
        values = [getattr(row, key) for row in rows]
        present = [value for value in values if value is not None]
        if key in LONGEST:
            changes[key] = max(present, default=None)
        elif isinstance(values[0], Histogram):
            changes[key] = _sum_of_histograms(present)
        elif isinstance(values[0], (int, float)) and key not in APART:
            changes[key] = sum(present)
    return rows[0].replaced(**changes, folded=sum(map(threads_of, rows)))


def _sum_of_histograms(histograms: Sequence[Histogram]) -> Histogram:
    def ns(time_s: float | None) -> int | None:
        return None if time_s is None else round(time_s * NS)

    return to_histogram(
        sum_distributions(
            {
                "count": each.count,
                "sum_ns": ns(each.sum_s),
                "min_ns": ns(each.min_s),
                "max_ns": ns(each.max_s),
                "buckets": [(ns(bound_s), number) for bound_s, number in each.buckets],
            }
            for each in histograms
        )
    )
