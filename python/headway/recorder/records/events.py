"""Extracts the events of a datagram: slow requests, lifecycle messages, garbage collections, long
holds of a GIL. Pure.

An event has a kind, a time and a key. A later event of the same process, kind and key is an update
and replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

TICK, SLOW_REQUEST, PROCESS_STARTED, PROCESS_STOPPING, PROCESS_STOPPED = 2, 4, 5, 6, 7
GC_SNAPSHOT, GC_EVENT = 8, 9

LIFECYCLE = {
    PROCESS_STARTED: "process_started",
    PROCESS_STOPPING: "process_stopping",
    PROCESS_STOPPED: "process_stopped",
}
KNOWN_KINDS = frozenset({TICK, SLOW_REQUEST, *LIFECYCLE, GC_SNAPSHOT, GC_EVENT})

# The most events that are kept per process and minute. Most collections are short and frequent, so
# a sample of these is enough.
MAX_PER_MINUTE = {"gc": 600, "short gc": 120, "hold": 600, "slow": 600, "lifecycle": 60}
SHORT_S = 0.001
# The length to which names in keys are cut.
MAX_NAME = 255
# Snapshots of a collector's counters are kept once per interval; collections are separate events.
SNAPSHOT_INTERVAL_S = 60


class Found(NamedTuple):
    """An event of a datagram."""

    kind: str
    time: float
    key: str
    body: dict[str, Any]


def find_events(kind: int, time: float, fields: dict[str, Any]) -> Iterator[Found]:
    """Yields the events of one datagram. `time` is the trusted time of the datagram."""
    if kind == TICK:
        for hold in fields.get("holds", ()):
            if isinstance(hold, dict):
                stamp = believed(hold.get("hold_stamp"), time)
                # One that has not ended comes again with each tick, and is of that time.
                at = time if hold.get("hold_present") else stamp
                yield Found("hold", at, f"{stamp}/{hold.get('hold_native_id')}", hold)
    elif kind == SLOW_REQUEST:
        start = believed(fields.get("slow_start_stamp"), time)
        key = f"{start}/{fields.get('slow_thread_id')}/{name_in(fields, 'slow_log_id')}"
        yield Found("slow", start, key, fields)
    elif kind in LIFECYCLE:
        what = LIFECYCLE[kind]
        yield Found("lifecycle", time, f"{what}/{time}", {"event": what, **fields})
    elif kind == GC_SNAPSHOT:
        minute = time // SNAPSHOT_INTERVAL_S * SNAPSHOT_INTERVAL_S
        key = f"snapshot/{minute:.0f}/{name_in(fields, 'interpreter_name')}"
        yield Found("gc", minute, key, {"event": "gc_snapshot", **fields})
    elif kind == GC_EVENT:
        start = believed(fields.get("gc_event_start_stamp"), time)
        key = f"{start}/{name_in(fields, 'interpreter_name')}"
        yield Found("gc", start, key, {"event": "gc_event", **fields})


def name_in(fields: dict[str, Any], name: str) -> str:
    return str(fields.get(name, ""))[:MAX_NAME]


def believed(stamp: object, time: float) -> float:
    """Returns `stamp` if it is at most a day before `time`, and not after it; else `time`."""
    if isinstance(stamp, float) and time - 86_400 <= stamp <= time:
        return stamp
    return time


class Limiter:
    """Limits the events of each process and kind per minute, and counts the rejected ones."""

    def __init__(self) -> None:
        self._minute = 0.0
        self._passed: dict[tuple[int, str], int] = {}
        self._keys: set[tuple[int, str]] = set()
        self.left_out = 0
        self.short_left_out = 0

    def passes(self, sender: object, event: Found, now: float) -> bool:
        minute = now // 60
        if minute != self._minute:
            self._minute = minute
            self._passed.clear()
            self._keys.clear()
        name = (id(sender), event.key)
        if name in self._keys:
            # The event replaces one that has already passed.
            return True
        duration_s = event.body.get("gc_event_duration")
        is_short = isinstance(duration_s, float) and duration_s < SHORT_S
        kind = "short gc" if is_short else event.kind
        count = self._passed.get((id(sender), kind), 0)
        if count >= MAX_PER_MINUTE[kind]:
            self.left_out += not is_short
            self.short_left_out += is_short
            return False
        self._passed[id(sender), kind] = count + 1
        self._keys.add(name)
        return True
