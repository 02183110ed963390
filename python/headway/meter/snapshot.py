"""A snapshot of the books, and the GIL report (schema 1) of it.

Knows nothing of how the books are kept. A *raw* process is what `headway._native` returns.
"""

from __future__ import annotations

from headway.report.distributions import (
    GIL_COUNTS,
    GIL_MAXIMA,
    GIL_TIMES,
    PARK_TIMES,
    THREAD_COUNTS,
    THREAD_MAXIMA,
    percentiles_ns,
    sum_distributions,
)

# `typing` is not loaded in every program that is measured, and this file is.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Report = dict[str, Any]

NS = 1e9  # in a second


class Snapshot:
    """The books of a process at one moment, or between two: `after - before`."""

    def __init__(self, raw: Report) -> None:
        self._raw = raw

    def __sub__(self, before: Snapshot) -> Snapshot:
        """What happened between `before` and this snapshot of the same process.

        Longest waits and answers are those of the whole time: `longest_*` cannot be subtracted.
        """
        if not isinstance(before, Snapshot):
            return NotImplemented
        from headway.meter.difference import difference

        return Snapshot(difference(self._raw, before._raw))

    def to_dict(self) -> Report:
        """The GIL report, schema 1: seconds, counts, and null for what is not known."""
        return _process(self._raw)

    def __str__(self) -> str:
        from headway.report import terminal

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
        # Null where they are not known.
        "parent_pid": raw.get("parent_pid"),
        "forked_from": raw.get("forked_from"),
        "command": raw.get("command") or None,
        "gil": "enabled" if raw["gil_enabled"] else "disabled",
        "policy": raw["policy"],
        "switch_interval": raw["switch_interval_us"] / 1e6,
        "wall": raw["wall_ns"] / NS,
        "gils": [_gil(row, raw) for row in raw["gils"]],
        "threads": sorted(map(_thread, raw["threads"]), key=lambda row: -row["waited"]),
        "free_threading": None if raw["parks"] is None else _free_threading(raw["parks"]),
        "unmeasured_events": raw["unmeasured_events"],
        "children": [_process(child) for child in raw["children"]],
        "unlisted_children": raw["unlisted_children"],
    }


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
        name = f"interpreter {'?' if own is None else own}"
        interpreters = [] if own is None else [own]
    result: Report = {
        "id": row["id"],
        "name": name if row["folded"] else row["name"] or name,
        "interpreters": interpreters,
        "alive": row["alive"],
    }
    result.update({key: row[f"{key}_ns"] / NS for key in GIL_TIMES})
    result.update({key: row[key] for key in GIL_COUNTS})
    # CPython's own scheduling knows no classes.
    classes = process["policy"] != "interval"
    result.update({key: _longest(row[raw]) if classes else None for key, raw in GIL_MAXIMA.items()})
    for key in ("wait", "hold"):
        result[key] = _histogram(sum_distributions(thread[key] for thread in rows))
    return result


def _thread(row: Report) -> Report:
    result: Report = {
        "native_id": row["native_id"],
        "name": _name(row),
        "gil": row["gil"],
        "alive": row["alive"],
        "folded": row["folded"],
        "held": row["held_ns"] / NS,
        "waited": row["wait"]["sum_ns"] / NS,
        "forced_waited": row["forced_waited_ns"] / NS,
    }
    result.update({key: row[key] for key in THREAD_COUNTS})
    result.update({key: _longest(row[raw]) for key, raw in THREAD_MAXIMA.items()})
    for key in ("wait", "hold"):
        result[key] = _histogram(row[key])
    return result


def _free_threading(parks: Report) -> Report:
    """What a free-threaded build has instead of a GIL's books: null on every other."""
    rows = parks["threads"]
    result: Report = {"cpu": None if parks["cpu_ns"] is None else parks["cpu_ns"] / NS}
    for key in PARK_TIMES:
        result[key] = _histogram(sum_distributions(row[key] for row in rows))
    result["stopping"] = _stopping(rows)
    threads = [
        {
            "native_id": row["native_id"],
            "name": _name(row),
            "alive": row["alive"],
            "folded": row["folded"],
            **{key: _histogram(row[key]) for key in PARK_TIMES},
            "stopping": _stopping([row]),
        }
        for row in rows
    ]
    result["threads"] = sorted(threads, key=lambda row: -row["parked"]["sum"])
    return result


def _stopping(rows: list[Report]) -> Report:
    return {
        "count": sum(row["stopping"] for row in rows),
        "sum": sum(row["stopping_ns"] for row in rows) / NS,
    }


def _name(row: Report) -> str:
    return row["name"] or ("(unnamed)" if row["native_id"] else "(ended)")


def _longest(ns: int) -> float | None:
    return ns / NS if ns else None


def _histogram(distribution: Report) -> Report:
    """HIST of the report."""
    low, high = distribution["min_ns"], distribution["max_ns"]
    result: Report = {
        "count": distribution["count"],
        "sum": distribution["sum_ns"] / NS,
        "min": None if low is None else low / NS,
        "max": None if high is None else high / NS,
    }
    for key, ns in percentiles_ns(distribution).items():
        result[key] = None if ns is None else ns / NS
    result["buckets"] = [[bound / NS, number] for bound, number in distribution["buckets"]]
    return result
