"""Shows many threads in few rows: the threads whose names share a pattern are summed up in one row,
whose `folded` is their number.

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
# Fields that are not summed: maxima, each with the figure that belongs to it, and fields that
# identify rows.
LONGEST = {
    "longest_unanswered_s": "cpu_in_longest_unanswered_s",
    "longest_unanswered_cpu_s": "unanswered_with_most_cpu_s",
    "holding_now_s": "holding_now_s",
    "waiting_now_s": "waiting_now_s",
}
APART = ("gil", "native_id", "alive", "folded")


def threads_of(row: ThreadRow | ParkedThreadRow) -> int:
    """The number of threads that a row stands for. The meter itself sums up ended threads if they
    are many."""
    return row.folded or 1


def group(rows: Sequence[Row], figures: Sequence[Callable[[Row], float]], limit: int) -> list[Row]:
    """`rows`, sorted by the figures in descending order. If there are more than `limit` rows, or
    the meter has summed up some, the rows whose names share a pattern become one.

    For each figure, the thread with the largest value keeps its row, and so does the main thread.
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
            name = name_of_group(row, patterns)
            groups.setdefault((getattr(row, "gil", None), name), []).append(row)
    made: list[Row] = [
        _sum(same, name) if same[1:] else _named(same[0], name)
        for (_, name), same in groups.items()
    ]
    return _ranked(list(kept.values()) + made, figures)


def shown(
    rows: Sequence[Row], figures: Sequence[Callable[[Row], float]], limit: int
) -> tuple[list[Row], list[Row]]:
    """Splits `rows`, which are sorted, into at most `limit` rows and the rest. The row with the
    largest value of each figure is among the first, and so is the main thread's."""
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
    """A thread's name with "*" in place of its numbers. In `threading`'s "Thread-12 (target)" only
    the first number is replaced."""
    head, space, tail = name.partition(" ") if name.startswith("Thread-") else (name, "", "")
    made = ""
    for character in head:
        if character not in DIGITS:
            made += character
        elif made[-1:] != "*":
            made += "*"
    return made + space + tail


def name_of_group(row: ThreadRow | ParkedThreadRow, patterns: set[str]) -> str:
    """The name under which a row is summed up. `patterns` are those of the rows of one thread."""
    name = pattern(row.name)
    if threads_of(row) > 1 and _lost_a_number(row.name, patterns):
        return numbered(name)
    return name


def _lost_a_number(name: str, patterns: set[str]) -> bool:
    """Whether the meter has removed a number from the name to sum up threads: true for "worker-",
    false for "(ended)", which is the meter's own name, and for "setup"."""
    if numbered(pattern(name)) in patterns or name.startswith("Thread- "):
        return True
    return not name.startswith("(") and not name[-1:].isalnum()


def numbered(stem: str) -> str:
    """The pattern of the names that the meter sums up under `stem`, the name without its number."""
    head, space, tail = stem.partition(" ") if stem.startswith("Thread-") else (stem, "", "")
    return f"{head}*{space}{tail}"


def _ranked(rows: Sequence[Row], figures: Sequence[Callable[[Row], float]]) -> list[Row]:
    return sorted(rows, key=lambda row: [-figure(row) for figure in figures])


def _named(row: Row, name: str) -> Row:
    """The row with the name `name`, but a row of one thread keeps its own name."""
    return row if threads_of(row) == 1 else row.replaced(name=name)


def _sum(rows: Sequence[Row], name: str) -> Row:
    names = {row.name for row in rows}
    # Rows that have the same name, such as asyncio_0 of several executors, keep that name.
    changes: dict[str, Any] = {"name": names.pop() if len(names) == 1 else name}
    for key in rows[0].FIELDS:
        values = [getattr(row, key) for row in rows]
        present = [value for value in values if value is not None]
        if key in LONGEST:
            longest = max(rows, key=lambda row: getattr(row, key) or 0.0)
            changes |= {name: getattr(longest, name) for name in (key, LONGEST[key])}
        elif isinstance(values[0], Histogram):
            changes[key] = _sum_of_histograms(present)
        elif isinstance(values[0], (int, float)) and key not in (*APART, *LONGEST.values()):
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
