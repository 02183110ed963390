"""The model of a timeline: the holds, waits and drop requests of threads, with their times.

`headway run --trace` fills it from measured holds and waits, `headway simulate` from simulated
ones; the code that draws or exports a timeline treats both alike. This module does not depend on
files or drawings.

Times are nanoseconds of any clock, all within `begin_ns` and `end_ns`. Spans of one thread and kind
do not overlap, and are in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# The kinds of spans: the thread holds its GIL; waits for the GIL (from its first look at a held GIL
# to its take); was forced to drop the GIL and waits until another thread has taken it; collects
# garbage; answers a request; or runs on a core (both simulated only).
HOLD, WAIT, FORCED_WAIT, COLLECTION = "hold", "wait", "forced wait", "garbage collection"
REQUEST, RUNNING = "request", "running"
# How a hold ended: by a drop request, by the thread itself, or not yet.
FORCED, VOLUNTARY, UNFINISHED = "forced", "voluntary", ""


@dataclass(frozen=True, slots=True)
class TimelineThread:
    """A thread of a timeline. `gil` is the name of the thread's GIL, or "" for a thread without a
    GIL (a client, a free-threaded build)."""

    name: str
    gil: str = ""
    native_id: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time in one state. `thread` is an index in `Timeline.threads`. `how` is how a
    hold ended, and "" for other kinds. A span that crosses the begin or the end of the timeline is
    cut there."""

    kind: str
    thread: int
    from_ns: int
    to_ns: int
    how: str = ""


@dataclass(frozen=True, slots=True)
class DropRequest:
    """`waiter` asks `holder` to drop the GIL. Both are indexes in `Timeline.threads`; `holder` is
    -1 if it is unknown."""

    at_ns: int
    waiter: int
    holder: int = -1


@dataclass(slots=True)
class Timeline:
    """A timeline. `lost` counts the events that were discarded for lack of room.
    `switch_interval_ns` is the switch interval of its GILs; 0 if it is unknown, or differs."""

    title: str
    threads: list[TimelineThread]
    end_ns: int
    begin_ns: int = 0
    spans: list[Span] = field(default_factory=list)
    drop_requests: list[DropRequest] = field(default_factory=list)
    process_id: int = 0
    process_name: str = ""
    lost: int = 0
    switch_interval_ns: int = 0
