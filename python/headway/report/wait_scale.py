"""The rows of a histogram of waits, on a scale made for the switch interval.

A waiting thread requests the GIL after one switch interval without a switch, and again after each
further one, so waits cluster just above the interval's multiples. Logarithmic rows would hide that
from the third multiple on. Therefore rows are logarithmic below the interval, equal parts of it up
to the multiple that most waits stay below, and doublings beyond. Does not depend on terminals.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.report.model import Histogram

MAX_MULTIPLES = 16
# From this number on, rows without a wait that follow each other are one row.
MAX_EMPTY = 3
# The number of rows in one interval, by the greatest multiple shown. No row may be narrower than a
# bucket, which is up to 6.25 % of its value: at k intervals, 16 / k rows at most.
PARTS = ((3, 5), (4, 4), (5, 3), (8, 2), (MAX_MULTIPLES, 1))
# Limits are products of floats. This factor keeps a bucket that ends at a limit within it.
ROUNDING = 1 + 1e-9


class WaitRange:
    """The waits longer than `low_s` and no longer than `high_s`, as precisely as buckets allow.
    `multiple` is k if the row begins at k switch intervals, else 0."""

    __slots__ = ("count", "high_s", "low_s", "multiple")

    def __init__(self, low_s: float, high_s: float, multiple: int = 0) -> None:
        self.low_s = low_s
        self.high_s = high_s
        self.multiple = multiple
        self.count = 0


def rows(histogram: Histogram, interval_s: float | None) -> list[WaitRange]:
    """The rows of a histogram, from the first row with a wait to the last, in ascending order. Each
    begins where the one before ends.

    A bucket that contains a row's limit counts for the row above the limit, because a wait of one
    interval ends a little after the interval, never before.
    """
    if not histogram.count:
        return []
    longest_s = max(upper_s for upper_s, _ in histogram.buckets)
    if interval_s:
        made = _multiples(interval_s, longest_s, _usual_s(histogram))
    else:
        made = _steps(longest_s)
    for upper_s, count in histogram.buckets:
        for row in made:
            if upper_s <= row.high_s * ROUNDING or row is made[-1]:
                row.count += count
                break
    used = [index for index, row in enumerate(made) if row.count]
    return _without_gaps(made[used[0] : used[-1] + 1])


def _without_gaps(rows: list[WaitRange]) -> list[WaitRange]:
    kept: list[WaitRange] = []
    empty: list[WaitRange] = []
    for row in rows:
        if not row.count:
            empty.append(row)
            continue
        if len(empty) >= MAX_EMPTY:
            empty = [WaitRange(empty[0].low_s, empty[-1].high_s, empty[0].multiple)]
        kept += [*empty, row]
        empty = []
    return kept


def _usual_s(histogram: Histogram) -> float:
    """The 98th percentile of the waits, as a bucket's upper bound."""
    limit, seen = 0.98 * histogram.count, 0
    for upper_s, count in histogram.buckets:
        seen += count
        if seen >= limit:
            return float(upper_s)
    return float(histogram.max_s or 0.0)


def _multiples(interval_s: float, longest_s: float, usual_s: float) -> list[WaitRange]:
    # Rounded up without `math`, because a program under `headway run` may have its own math.py.
    multiples = min(max(int(-(-usual_s // interval_s)), 1), MAX_MULTIPLES)
    parts = next(parts for limit, parts in PARTS if multiples <= limit)
    made = _steps(interval_s / parts)
    for part in range(1, multiples * parts):
        low_s, high_s = interval_s * part / parts, interval_s * (part + 1) / parts
        made.append(WaitRange(low_s, high_s, 0 if part % parts else part // parts))
    while made[-1].high_s < longest_s:
        made.append(WaitRange(interval_s * multiples, interval_s * multiples * 2, multiples))
        multiples *= 2
    return made


def _steps(limit_s: float) -> list[WaitRange]:
    """Rows up to 10 us, 20 us, 50 us, 100 us and so on, the last one up to `limit_s`."""
    limits = [limit_s]
    decade_s = 1e-5
    while decade_s < limit_s:
        limits += [step * decade_s for step in (1, 2, 5) if step * decade_s < limit_s]
        decade_s *= 10
    limits.sort()
    return [WaitRange(low_s, high_s) for low_s, high_s in zip([0.0, *limits], limits, strict=False)]
