"""Makes a timeline of the events that the meter kept of a running process.

An event is the kernel's id of a thread, a kind and a time: see `crates/gil/src/trace`. The meter
keeps the latest events only, so the first of them may end a span whose begin is lost; such a span
is cut at the begin of the timeline. This module does not depend on how events are kept or where a
timeline goes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from headway.report.model import GilReport
from headway.trace.timeline import (
    COLLECTION,
    FORCED,
    FORCED_WAIT,
    HOLD,
    UNFINISHED,
    VOLUNTARY,
    WAIT,
    DropRequest,
    Span,
    Timeline,
    TimelineThread,
)

# The same values as `Kind` in crates/gil/src/trace/recording.rs.
HELD, WAITS, TAKES, TAKES_AFTER_WAIT, DROPS, DROPS_FORCED = 1, 2, 3, 4, 5, 6
ASKS, GAVE_UP, FORCED_TO_WAIT, FORCED_WAIT_ENDED, CLOSED = 7, 8, 9, 10, 11
COLLECTS, COLLECTION_ENDED = 12, 13

# The layout of `Event` in crates/gil/src/trace/ring.rs: the time, and bits of a second word.
EVENT = struct.Struct("<QQ")
THREAD_MASK = (1 << 22) - 1
KIND_SHIFT, KIND_MASK = 22, 15
GIL_SHIFT = 32


class _Gil:
    """The state of a GIL between two events."""

    __slots__ = ("held_since_ns", "holder", "name", "seen")

    def __init__(self, name: str) -> None:
        self.name = name
        # An index in `Timeline.threads`; -1 while no thread holds the GIL.
        self.holder = -1
        self.held_since_ns = 0
        self.seen = False


class _Reader:
    def __init__(
        self, timeline: Timeline, gil_names: Mapping[int, str], names: Mapping[int, str]
    ) -> None:
        self.timeline = timeline
        self.gil_names = gil_names
        self.names = names
        self.gils: dict[int, _Gil] = {}
        self.places: dict[tuple[int, str], int] = {}
        # The begins of the waits in progress, by index in `Timeline.threads`.
        self.waits: dict[int, int] = {}
        self.forced_waits: dict[int, int] = {}
        self.collections: dict[int, int] = {}

    def read(self, at_ns: int, kind: int, native_id: int, serial: int) -> None:
        gil = self.gils.get(serial)
        if gil is None:
            gil = self.gils[serial] = _Gil(self.gil_names.get(serial) or f"GIL {serial}")
        if kind == CLOSED:
            self._end_all(at_ns, gil)
            return
        thread = self._thread(native_id, gil.name)
        if kind in (TAKES, TAKES_AFTER_WAIT, HELD):
            if kind == TAKES_AFTER_WAIT:
                since_ns = self.waits.pop(thread, self.timeline.begin_ns)
                self._add(WAIT, thread, since_ns, at_ns)
            # The previous holder's drop may be among the lost events.
            self._end_hold(gil, at_ns, UNFINISHED)
            gil.holder, gil.held_since_ns = thread, at_ns
            gil.seen = True
        elif kind in (DROPS, DROPS_FORCED):
            if not gil.seen:
                gil.holder, gil.held_since_ns = thread, self.timeline.begin_ns
            self._end_hold(gil, at_ns, FORCED if kind == DROPS_FORCED else VOLUNTARY)
            gil.seen = True
        elif kind == WAITS:
            self.waits[thread] = at_ns
        elif kind == GAVE_UP:
            if thread in self.waits:
                self._add(WAIT, thread, self.waits.pop(thread), at_ns)
        elif kind == ASKS:
            self.timeline.drop_requests.append(DropRequest(at_ns, thread, gil.holder))
        elif kind == FORCED_TO_WAIT:
            self.forced_waits[thread] = at_ns
        elif kind == FORCED_WAIT_ENDED:
            since_ns = self.forced_waits.pop(thread, self.timeline.begin_ns)
            self._add(FORCED_WAIT, thread, since_ns, at_ns)
        elif kind == COLLECTS:
            self.collections[thread] = at_ns
        elif kind == COLLECTION_ENDED:
            since_ns = self.collections.pop(thread, self.timeline.begin_ns)
            self._add(COLLECTION, thread, since_ns, at_ns)

    def end(self) -> None:
        """Ends the spans that are still open at the end of the timeline."""
        for gil in self.gils.values():
            self._end_all(self.timeline.end_ns, gil)

    def _end_all(self, at_ns: int, gil: _Gil) -> None:
        self._end_hold(gil, at_ns, UNFINISHED)
        threads = self.timeline.threads
        for thread in [place for place in self.waits if threads[place].gil == gil.name]:
            self._add(WAIT, thread, self.waits.pop(thread), at_ns)

    def _end_hold(self, gil: _Gil, at_ns: int, how: str) -> None:
        if gil.holder >= 0:
            self._add(HOLD, gil.holder, gil.held_since_ns, at_ns, how)
        gil.holder = -1

    def _add(self, kind: str, thread: int, from_ns: int, to_ns: int, how: str = "") -> None:
        self.timeline.spans.append(Span(kind, thread, from_ns, max(from_ns, to_ns), how))

    def _thread(self, native_id: int, gil: str) -> int:
        place = self.places.get((native_id, gil))
        if place is None:
            place = self.places[native_id, gil] = len(self.timeline.threads)
            # All threads without counters of their own share the id 0.
            unnamed = f"thread {native_id}" if native_id else "(unmeasured)"
            name = self.names.get(native_id) or unnamed
            self.timeline.threads.append(TimelineThread(name, gil, native_id))
        return place


def to_timeline(trace: Mapping[str, Any], report: GilReport, process_name: str = "") -> Timeline:
    """The timeline of the events that `headway.meter.engine.read_trace()` returned. `report` is the
    GIL report of the same process, which has the names of the running threads."""
    began_ns, lost = trace["began_ns"], trace["lost"]
    # Events of forced waits are recorded when the wait is over, so the order is not that of time.
    events = sorted(EVENT.iter_unpack(trace["events"]), key=_time_of)
    timeline = Timeline(
        title=process_name,
        threads=[],
        # After a crash the end is not recorded, so the last event stands for it.
        end_ns=max(began_ns, trace["ended_ns"], events[-1][0] if events else 0) - began_ns,
        begin_ns=events[0][0] - began_ns if events and lost else 0,
        process_id=report.pid,
        process_name=process_name,
        lost=lost,
        switch_interval_ns=round((report.switch_interval_s or 0) * 1e9),
    )
    reader = _Reader(timeline, _gil_names(trace["gils"]), report.thread_names(trace["threads"]))
    for time_ns, word in events:
        kind = word >> KIND_SHIFT & KIND_MASK
        reader.read(max(0, time_ns - began_ns), kind, word & THREAD_MASK, word >> GIL_SHIFT)
    reader.end()
    return timeline


def _time_of(event: tuple[int, ...]) -> int:
    return event[0]


def _gil_names(rows: Iterable[tuple[int, int | None, str]]) -> dict[int, str]:
    """The names of GILs by serial number: the name that the program gave, else that of the
    interpreter. Two GILs share a name only if both belong to the same interpreter."""
    names: dict[int, str] = {}
    owners: dict[str, int | None] = {}
    for serial, interpreter, told in sorted(rows):
        name = told or ("main" if interpreter == 0 else f"interpreter {interpreter}")
        if interpreter is None and not told:
            name = f"GIL {serial}"
        if owners.setdefault(name, interpreter) != interpreter:
            name = f"{name} ({serial})"
        names[serial] = name
    return names
