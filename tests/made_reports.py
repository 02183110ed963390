"""Reports made up of given waits and holds, as parsed JSON, for tests of what is done with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headway.report.model import GilReport, Malformed

SWITCH_INTERVAL_S = 0.005
PARTS = {"p50_s": 0.5, "p90_s": 0.9, "p95_s": 0.95, "p99_s": 0.99, "p999_s": 0.999}


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
        "sum_s": float(sum(values_s)),
        "min_s": values_s[0] if count else None,
        "max_s": values_s[-1] if count else None,
    }
    for name, part in PARTS.items():
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
    longest_unanswered_s: float | None = None,
    longest_unanswered_cpu_s: float | None = None,
    cpu_in_longest_unanswered_s: float | None = None,
    unanswered_with_most_cpu_s: float | None = None,
    holding_now_s: float | None = None,
    waiting_now_s: float | None = None,
    preventable_s: float | None = None,
    unanswered_s: float = 0.0,
    off_core_s: float = 0.0,
    collection_s: float = 0.0,
    collections_s: Sequence[float] = (),
    folded: int = 0,
) -> dict[str, Any]:
    return {
        "native_id": 1000 + sum(map(ord, name)),
        "name": name,
        "gil": gil,
        "alive": True,
        "folded": folded,
        "held_s": float(sum(holds_s)),
        "waited_s": float(sum(waits_s)),
        "forced_waited_s": 0.0,
        "takes": len(holds_s),
        "contended_takes": len(waits_s),
        "voluntary_drops": len(holds_s) - forced_drops,
        "forced_drops": forced_drops,
        "forced_waits": forced_drops,
        "preemptions": preemptions,
        "waited_preventable_s": preventable_s,
        "waited_unanswered_s": None if preventable_s is None else unanswered_s,
        "waited_off_core_s": None if preventable_s is None else off_core_s,
        "waited_collection_s": None if preventable_s is None else collection_s,
        "collections": len(collections_s),
        "collected_s": float(sum(collections_s)),
        "longest_collection_s": max(collections_s, default=None),
        "longest_unanswered_s": longest_unanswered_s,
        "cpu_in_longest_unanswered_s": cpu_in_longest_unanswered_s,
        "longest_unanswered_cpu_s": longest_unanswered_cpu_s,
        "unanswered_with_most_cpu_s": unanswered_with_most_cpu_s,
        "holding_now_s": holding_now_s,
        "waiting_now_s": waiting_now_s,
        "wait": histogram(waits_s),
        "hold": histogram(holds_s),
        "_waits_s": waits_s,
        "_holds_s": holds_s,
    }


def gil(
    threads: Sequence[dict[str, Any]], wall_s: float, *, id: int = 0, drop_requests: int = 0
) -> dict[str, Any]:
    mine = [row for row in threads if row["gil"] == id]
    held_s = sum(row["held_s"] for row in mine)
    counts = ("takes", "contended_takes", "voluntary_drops", "forced_drops", "preemptions")
    return {
        "id": id,
        "name": "main" if id == 0 else f"interpreter {id}",
        "interpreters": [id],
        "alive": True,
        "wall_s": wall_s,
        "held_s": held_s,
        "handoff_s": 0.0,
        "idle_s": wall_s - held_s,
        **{count: sum(row[count] for row in mine) for count in counts},
        "drop_requests": drop_requests,
        **dict.fromkeys(("anomalies", "held_at_open", "held_now"), 0),
        "longest_wait_io_bound_s": None,
        "longest_wait_cpu_bound_s": None,
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
        "schema": 2,
        "python": "3.13.0",
        "pid": 4242,
        **dict.fromkeys(("parent_pid", "forked_from", "command", "machine", "free_threading")),
        "gil": "enabled",
        "policy": "interval",
        "switch_interval_s": SWITCH_INTERVAL_S,
        "wall_s": wall_s,
        "gils": gils,
        "threads": rows,
        "event_loops": [],
        "unmeasured_events": 0,
        "unmeasured_gils": 0,
        "unmeasured_loops": 0,
        "children": [],
        "unlisted_children": 0,
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
        switch_interval_s=interval_s,
    )


def decoded(made: dict[str, Any]) -> GilReport:
    """As the code that is tested gets it."""
    return GilReport.decode(made)


def problem_of(made: Any) -> str:
    """The text with which a report is refused; "" if it is accepted."""
    try:
        GilReport.decode(made)
    except Malformed as problem:
        return str(problem)
    return ""
