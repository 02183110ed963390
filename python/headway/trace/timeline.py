"""What threads did with their GILs, moment by moment, wherever it was seen.

`headway run --trace` fills it from real holds and waits, `headway simulate` from simulated ones;
what draws or exports it cannot tell which. It knows nothing of files and drawings.

Times are nanoseconds by whatever clock, all within `begin_ns` and `end_ns`. Spans of one thread and
kind do not overlap, and are in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# What a span is: the thread holds its GIL; waits for it (from its first look at a held GIL to its
# take); was forced to drop it and waits until another has taken it; answers a request; or is on a
# core (simulated only).
HOLD, WAIT, FORCED_WAIT, REQUEST, RUNNING = "hold", "wait", "forced wait", "request", "running"
# How a hold ended: it was asked for (`headway.gil` has the words), or not; or it has not.
FORCED, VOLUNTARY, UNFINISHED = "forced", "voluntary", ""


@dataclass(frozen=True, slots=True)
class TimelineThread:
    """`gil` is the name of its GIL; empty for a thread without one (a client, a free-threaded
    build)."""

    name: str
    gil: str = ""
    native_id: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """`thread` is a place in `Timeline.threads`. `how` tells how a hold ended; for other kinds it
    is empty. A span that was under way at the begin or the end of what was seen is cut there."""

    kind: str
    thread: int
    from_ns: int
    to_ns: int
    how: str = ""


@dataclass(frozen=True, slots=True)
class DropRequest:
    """`waiter` asks `holder` to drop; both are places in `Timeline.threads`, `holder` -1 where it
    was not seen."""

    at_ns: int
    waiter: int
    holder: int = -1


@dataclass(slots=True)
class Timeline:
    """`lost` counts the events that were not kept, for want of room. `switch_interval_ns` is that
    of its GILs; 0 where it is not known, or they differ."""

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
