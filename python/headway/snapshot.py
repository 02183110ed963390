"""A snapshot of the books: the GIL report (schema 1) of it, and what lies between two.

Knows nothing of how the books are kept. A *raw* process is what `headway._native` returns.
"""

from __future__ import annotations

# `typing` is not loaded in every program that is measured, and this file is.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Report = dict[str, Any]

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
NS = 1e9  # in a second


class Snapshot:
    """The books of a process at one moment, or between two: `after - before`."""

    def __init__(self, raw: Report) -> None:
        self._raw = raw

    def __sub__(self, before: Snapshot) -> Snapshot:
        """What happened between `before` and this snapshot of the same process."""
        if not isinstance(before, Snapshot):
            return NotImplemented
        return Snapshot(_difference(self._raw, before._raw))

    def to_dict(self) -> Report:
        """The GIL report, schema 1: seconds, counts, and null for what is not known."""
        return _process(self._raw)

    def __str__(self) -> str:
        from headway import terminal

        return terminal.draw(self.to_dict(), terminal.Style())

    def __repr__(self) -> str:
        raw = self._raw
        return (
            f"<Snapshot of pid {raw['pid']}: {raw['wall_ns'] / NS:.3f} s, "
            f"{len(raw['gils'])} GILs, {len(raw['threads'])} threads>"
        )


def _process(raw: Report) -> Report:
    return {
        "schema": 1,
        "python": raw["python"],
        "pid": raw["pid"],
        "gil": "enabled" if raw["gil_enabled"] else "disabled",
        "policy": "interval",
        "switch_interval": raw["switch_interval_us"] / 1e6,
        "wall": raw["wall_ns"] / NS,
        "gils": [_gil(row, raw) for row in raw["gils"]],
        "threads": sorted(map(_thread, raw["threads"]), key=lambda row: -row["waited"]),
        "unmeasured_events": raw["unmeasured_events"],
        "children": [_process(child) for child in raw["children"]],
        "unlisted_children": raw["unlisted_children"],
    }


_GIL_TIMES = ("wall", "held", "handoff", "idle")
_GIL_COUNTS = (
    "takes",
    "contended_takes",
    "voluntary_drops",
    "forced_drops",
    "drop_requests",
    "preemptions",
    "anomalies",
    "held_at_open",
    "held_now",
)
_THREAD_COUNTS = (
    "takes",
    "contended_takes",
    "voluntary_drops",
    "forced_drops",
    "forced_waits",
    "preemptions",
)


def _gil(row: Report, process: Report) -> Report:
    rows = [thread for thread in process["threads"] if thread["gil"] == row["id"]]
    own = row["interpreter"]
    if row["folded"]:
        name, interpreters = f"({row['folded']} ended)", []
    elif own == 0:
        others = {other["interpreter"] for other in process["gils"]} - {0}
        shared = [id for id in process.get("interpreters", [0]) if id not in others]
        name, interpreters = "main", shared
    else:
        name, interpreters = (
            f"interpreter {'?' if own is None else own}",
            [] if own is None else [own],
        )
    result: Report = {
        "id": row["id"],
        "name": name,
        "interpreters": interpreters,
        "alive": row["alive"],
    }
    result.update({key: row[f"{key}_ns"] / NS for key in _GIL_TIMES})
    result.update({key: row[key] for key in _GIL_COUNTS})
    for key in ("wait", "hold"):
        result[key] = _histogram(_sum_distributions(thread[key] for thread in rows))
    return result


def _thread(row: Report) -> Report:
    result: Report = {
        "native_id": row["native_id"],
        "name": row["name"] or ("(unnamed)" if row["native_id"] else "(ended)"),
        "gil": row["gil"],
        "alive": row["alive"],
        "folded": row["folded"],
        "held": row["held_ns"] / NS,
        "waited": row["wait"]["sum_ns"] / NS,
        "forced_waited": row["forced_waited_ns"] / NS,
    }
    result.update({key: row[key] for key in _THREAD_COUNTS})
    for key in ("wait", "hold"):
        result[key] = _histogram(row[key])
    return result


def _histogram(distribution: Report) -> Report:
    """HIST of the report. A percentile is its bucket's upper bound, at most 6.25 % too high."""
    buckets = distribution["buckets"]
    count = distribution["count"]
    low, high = distribution["min_ns"], distribution["max_ns"]
    result: Report = {
        "count": count,
        "sum": distribution["sum_ns"] / NS,
        "min": None if low is None else low / NS,
        "max": None if high is None else high / NS,
    }
    for key, share in PERCENTILES.items():
        bound = _percentile_ns(buckets, share * count)
        if bound is not None and high is not None:
            bound = min(bound, high)
        result[key] = None if bound is None else bound / NS
    result["buckets"] = [[bound / NS, number] for bound, number in buckets]
    return result


def _percentile_ns(buckets: list[tuple[int, int]], rank: float) -> int | None:
    seen = 0
    for bound, number in buckets:
        seen += number
        if seen >= rank:
            return bound
    return None


def _sum_distributions(distributions: Any) -> Report:
    total: Report = {"count": 0, "sum_ns": 0, "min_ns": None, "max_ns": None}
    counts: dict[int, int] = {}
    for one in distributions:
        total["count"] += one["count"]
        total["sum_ns"] += one["sum_ns"]
        for key, choose in (("min_ns", min), ("max_ns", max)):
            known = [value for value in (total[key], one[key]) if value is not None]
            total[key] = choose(known) if known else None
        for bound, number in one["buckets"]:
            counts[bound] = counts.get(bound, 0) + number
    total["buckets"] = sorted(counts.items())
    return total


# Differences. A row that the earlier snapshot lacks is taken whole.


def _difference(after: Report, before: Report) -> Report:
    result = dict(after)
    result["wall_ns"] = after["wall_ns"] - before["wall_ns"]
    result["unmeasured_events"] = after["unmeasured_events"] - before["unmeasured_events"]
    earlier_gils = {_gil_key(row): row for row in before["gils"]}
    result["gils"] = [
        _row_difference(row, earlier_gils.get(_gil_key(row))) for row in after["gils"]
    ]
    earlier_threads = {_thread_key(row): row for row in before["threads"]}
    result["threads"] = [
        _row_difference(row, earlier_threads.get(_thread_key(row))) for row in after["threads"]
    ]
    earlier_children = {child["pid"]: child for child in before["children"]}
    result["children"] = [
        _difference(child, earlier_children[child["pid"]])
        if child["pid"] in earlier_children
        else child
        for child in after["children"]
    ]
    return result


def _gil_key(row: Report) -> tuple[Any, ...]:
    return row["id"], row["interpreter"]


def _thread_key(row: Report) -> tuple[Any, ...]:
    return row["gil"], row["native_id"] or row["name"]


def _row_difference(after: Report, before: Report | None) -> Report:
    if before is None:
        return after
    result = dict(after)
    for key, value in after.items():
        if key in ("wait", "hold"):
            result[key] = _distribution_difference(value, before[key])
        elif key.endswith("_ns") or key in _GIL_COUNTS or key in _THREAD_COUNTS:
            result[key] = value - before[key]
    if "held_now" in after:
        # Held when this stretch began is what was held when the last one ended.
        result["held_at_open"], result["held_now"] = before["held_now"], after["held_now"]
    return result


def _distribution_difference(after: Report, before: Report) -> Report:
    """The extremes of a stretch are known only if they are extremes of the whole."""
    earlier = dict(before["buckets"])
    buckets = [(bound, number - earlier.get(bound, 0)) for bound, number in after["buckets"]]
    count = after["count"] - before["count"]
    fresh = before["count"] == 0 and count > 0
    return {
        "count": count,
        "sum_ns": after["sum_ns"] - before["sum_ns"],
        "min_ns": after["min_ns"]
        if fresh or (count and after["min_ns"] < before["min_ns"])
        else None,
        "max_ns": after["max_ns"]
        if fresh or (count and after["max_ns"] > before["max_ns"])
        else None,
        "buckets": [(bound, number) for bound, number in buckets if number],
    }
