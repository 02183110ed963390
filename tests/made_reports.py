"""Reports of schema 1 made up of given waits and holds, for tests of what is done with reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

SWITCH_INTERVAL_S = 0.005


def bucket_s(value_s: float) -> float:
    """The upper bound of a value's bucket: 16 to an octave of nanoseconds."""
    ns = round(value_s * 1e9)
    shift = max(ns.bit_length() - 5, 0)
    return (((ns >> shift) + 1) << shift) / 1e9


def histogram(values_s: Sequence[float]) -> dict[str, Any]:
    values_s = sorted(values_s)
    count = len(values_s)
    made: dict[str, Any] = {
        "count": count,
        "sum": float(sum(values_s)),
        "min": values_s[0] if count else None,
        "max": values_s[-1] if count else None,
    }
    for name, part in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        made[name] = values_s[min(int(part * count), count - 1)] if count else None
    made["buckets"] = [list(pair) for pair in sorted(Counter(map(bucket_s, values_s)).items())]
    return made


def thread(
    name: str,
    waits_s: Sequence[float] = (),
    holds_s: Sequence[float] = (0.001,),
    *,
    forced_drops: int = 0,
    gil: int = 0,
    preemptions: int = 0,
    longest_unanswered: float | None = None,
    longest_unanswered_cpu: float | None = None,
) -> dict[str, Any]:
    return {
        "native_id": 1000 + sum(map(ord, name)),
        "name": name,
        "gil": gil,
        "alive": True,
        "held": float(sum(holds_s)),
        "waited": float(sum(waits_s)),
        "forced_waited": 0.0,
        "takes": len(holds_s),
        "contended_takes": len(waits_s),
        "voluntary_drops": len(holds_s) - forced_drops,
        "forced_drops": forced_drops,
        "forced_waits": forced_drops,
        "preemptions": preemptions,
        "longest_unanswered": longest_unanswered,
        "longest_unanswered_cpu": longest_unanswered_cpu,
        "wait": histogram(waits_s),
        "hold": histogram(holds_s),
        "_waits_s": waits_s,
        "_holds_s": holds_s,
    }


def gil(
    threads: Sequence[dict[str, Any]], wall_s: float, *, id: int = 0, drop_requests: int = 0
) -> dict[str, Any]:
    mine = [row for row in threads if row["gil"] == id]
    held_s = sum(row["held"] for row in mine)
    counts = ("takes", "contended_takes", "voluntary_drops", "forced_drops", "preemptions")
    return {
        "id": id,
        "name": "main" if id == 0 else f"interpreter {id}",
        "interpreters": [id],
        "alive": True,
        "wall": wall_s,
        "held": held_s,
        "handoff": 0.0,
        "idle": wall_s - held_s,
        **{count: sum(row[count] for row in mine) for count in counts},
        "drop_requests": drop_requests,
        "longest_wait_io_bound": None,
        "longest_wait_cpu_bound": None,
        "wait": histogram([wait for row in mine for wait in row["_waits_s"]]),
        "hold": histogram([hold for row in mine for hold in row["_holds_s"]]),
    }


def report(
    threads: Sequence[dict[str, Any]], wall_s: float, *, drop_requests: int = 0, **changes: Any
) -> dict[str, Any]:
    ids = sorted({row["gil"] for row in threads})
    gils = [gil(threads, wall_s, id=id, drop_requests=drop_requests) for id in ids]
    rows = [{k: v for k, v in row.items() if not k.startswith("_")} for row in threads]
    return {
        "schema": 1,
        "python": "3.13.0",
        "pid": 4242,
        "gil": "enabled",
        "policy": "interval",
        "switch_interval": SWITCH_INTERVAL_S,
        "wall": wall_s,
        "gils": gils,
        "threads": rows,
        "children": [],
        **changes,
    }


def convoy(interval_s: float = SWITCH_INTERVAL_S) -> dict[str, Any]:
    """An I/O-bound thread that waits for one, two or three intervals behind a CPU-bound one."""
    waits_s = [k * interval_s * 1.02 for k in [1] * 60 + [2] * 25 + [3] * 8] + [2e-5] * 7
    return report(
        [
            thread("MainThread"),
            thread("hog", [1e-4] * 90, [interval_s] * 140, forced_drops=100),
            thread("echo", waits_s, [1e-5] * 100),
        ],
        interval_s * 145,
        drop_requests=120,
        switch_interval=interval_s,
    )
