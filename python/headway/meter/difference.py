"""The difference of two snapshots of a process: their raw counters, subtracted row by row.

Between the two snapshots, rows may have been folded: the row of an ended thread into the sum of its
name, the row of an ended GIL into the sum of GILs. The former values of such a row are subtracted
from that sum, so the difference balances as the snapshots do. A new row is taken whole.

Maxima cannot be subtracted. The extremes of a histogram are left out if they may be older than the
first snapshot. The other maxima keep their later value, which is an upper bound for the time
between the snapshots.
"""

from __future__ import annotations

from headway.meter import late_lines, machine
from headway.report.distributions import (
    GIL_COUNTS,
    GIL_MAXIMA,
    LOOP_COUNTS,
    LOOP_MAXIMA,
    LOOP_PARTS,
    PARK_TIMES,
    THREAD_COUNTS,
    THREAD_MAXIMA,
    sum_distributions,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Raw = dict[str, Any]
    Key = Callable[[Raw], tuple[Any, ...]]


KEPT = {*GIL_MAXIMA.values(), *THREAD_MAXIMA.values(), *LOOP_MAXIMA.values()}


def difference(after: Raw, before: Raw) -> Raw:
    result = dict(after)
    for key in ("wall_ns", "unmeasured_events"):
        result[key] = after[key] - before[key]
    result["gils"] = _rows(after["gils"], before["gils"], _gil_key, _one_sum)
    gone = {_gil_key(row): row["id"] for row in before["gils"]}
    for row in after["gils"]:
        gone.pop(_gil_key(row), None)

    def sum_of_threads(row: Raw) -> list[tuple[Any, ...]]:
        gils = [row["gil"]] if row["gil"] not in gone.values() else []
        gils += [other["id"] for other in after["gils"] if other["folded"]]
        names = (row["name"], _stem(row["name"]), "(ended)")
        return [(gil, name) for gil in gils for name in names]

    result["threads"] = _rows(after["threads"], before["threads"], _thread_key, sum_of_threads)
    if after["parks"] is not None and before["parks"] is not None:
        result["parks"] = _parks(after["parks"], before["parks"])
    result["loops"] = _rows(after["loops"], before["loops"], _loop_key, _one_sum)
    for row in result["loops"]:
        former = [each for each in before["loops"] if _loop_key(each) == _loop_key(row)]
        lines = [line for each in former for line in each.get("lines", ())]
        row["lines"] = late_lines.difference(row.get("lines", ()), lines)
    result["machine"] = _machine(after.get("machine"), before.get("machine"))
    earlier = {child["pid"]: child for child in before["children"]}
    result["children"] = [
        difference(child, earlier[child["pid"]]) if child["pid"] in earlier else child
        for child in after["children"]
    ]
    return result


def _machine(after: Raw | None, before: Raw | None) -> Raw | None:
    if after is None or before is None:
        return None
    return {
        **after,
        **{key: max(0.0, after[key] - before[key]) for key in machine.KEYS},
    }


def _parks(after: Raw, before: Raw) -> Raw:
    known = after["cpu_ns"] is not None and before["cpu_ns"] is not None

    def sum_of_threads(row: Raw) -> list[tuple[Any, ...]]:
        return [(name,) for name in (row["name"], _stem(row["name"]), "(ended)")]

    return {
        "cpu_ns": after["cpu_ns"] - before["cpu_ns"] if known else None,
        "threads": _rows(after["threads"], before["threads"], _park_key, sum_of_threads),
    }


def _park_key(row: Raw) -> tuple[Any, ...]:
    return (row["native_id"] or row["name"],)


def _loop_key(row: Raw) -> tuple[Any, ...]:
    return ("sum",) if row["folded"] else (row["native_id"], row["serial"])


def _gil_key(row: Raw) -> tuple[Any, ...]:
    return ("sum",) if row["folded"] else (row["id"], row["interpreter"])


def _one_sum(_row: Raw) -> list[tuple[Any, ...]]:
    return [("sum",)]


def _thread_key(row: Raw) -> tuple[Any, ...]:
    return row["gil"], row["native_id"] or row["name"]


def _stem(name: str) -> str:
    """The name under which the meter folds a thread's row (`stem_of` in crates/gil)."""
    head, space, tail = name.partition(" ") if name.startswith("Thread-") else (name, "", "")
    return head.rstrip("0123456789") + space + tail


def _rows(
    after: list[Raw], before: list[Raw], key: Key, sums: Callable[[Raw], list[Any]]
) -> list[Raw]:
    """`after` minus `before`. `sums` returns the keys under which a row of `before` may have been
    folded."""
    later = {key(row): row for row in after}
    earlier: dict[tuple[Any, ...], list[Raw]] = {}
    for row in before:
        same = later.get(key(row))
        home = key(row) if same is not None and _may_follow(same, row) else None
        if home is None:
            home = next((each for each in sums(row) if each in later), None)
        if home is not None:
            earlier.setdefault(home, []).append(row)
    return [_less(row, earlier.get(key(row), [])) for row in after]


def _may_follow(after: Raw, before: Raw) -> bool:
    """Whether `after` can be the same row later. The kernel reuses the ids of threads."""
    revived = after["alive"] and not before["alive"]
    return not revived and _count_of(after) >= _count_of(before)


def _count_of(row: Raw) -> int:
    """The number of a row's events, which only grows."""
    for distribution in ("parked", "duration"):
        if distribution in row:
            return int(row[distribution]["count"])
    return int(row["takes"])


def _less(after: Raw, before: list[Raw]) -> Raw:
    result = dict(after)
    for row in before:
        for key in after:
            adds_up = key.endswith("_ns") and key not in KEPT
            if adds_up or key in (*GIL_COUNTS, *THREAD_COUNTS, *LOOP_COUNTS, "stopping"):
                result[key] -= row[key]
    for key in ("wait", "hold", *PARK_TIMES, *LOOP_PARTS.values()):
        if before and key in after:
            total = sum_distributions(row[key] for row in before)
            result[key] = _distribution_less(after[key], total)
    if "held_now" in after:
        # A hold in progress at the first snapshot is a hold that was open at the begin.
        held_before = sum(row["held_now"] for row in before)
        result["held_at_open"] += held_before
        result["held_now"] = after["held_now"]
    return result


def _distribution_less(after: Raw, before: Raw) -> Raw:
    """`after` minus `before`. An extreme is known only if it is new in `after`."""
    earlier = dict(before["buckets"])
    buckets = [(bound, number - earlier.get(bound, 0)) for bound, number in after["buckets"]]
    count = after["count"] - before["count"]
    new_min = new_max = count > 0
    if before["count"] and count:
        new_min = after["min_ns"] < before["min_ns"]
        new_max = after["max_ns"] > before["max_ns"]
    return {
        "count": count,
        "sum_ns": after["sum_ns"] - before["sum_ns"],
        "min_ns": after["min_ns"] if new_min else None,
        "max_ns": after["max_ns"] if new_max else None,
        "buckets": [(bound, number) for bound, number in buckets if number],
    }
