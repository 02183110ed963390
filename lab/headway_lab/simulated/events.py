"""Turns the events of an outcome into a timeline, like that of a real run by `headway run --trace`.

Pure. This module does not draw.
"""

from __future__ import annotations

from headway.trace.timeline import (
    FORCED,
    FORCED_WAIT,
    HOLD,
    REQUEST,
    RUNNING,
    UNFINISHED,
    VOLUNTARY,
    WAIT,
    DropRequest,
    Span,
    Timeline,
    TimelineThread,
)
from headway_lab.simulated.scenario import Outcome, Scenario

BEGINS = {
    "wait": WAIT,
    "take": HOLD,
    "forced_wait": FORCED_WAIT,
    "run": RUNNING,
    "begin": REQUEST,
}
# The phase that each event ends, and the kind of end of a hold.
ENDS = {
    "take": (WAIT, ""),
    "drop": (HOLD, VOLUNTARY),
    "forced_drop": (HOLD, FORCED),
    "forced_wait_over": (FORCED_WAIT, ""),
    "stop": (RUNNING, ""),
    "end": (REQUEST, ""),
}
ASK = "ask"
TICKS = "ticks"


def timeline(title: str, scenario: Scenario, outcome: Outcome) -> Timeline:
    """The timeline of the scenario's window."""
    single = len(scenario.gils) == 1
    threads = [
        TimelineThread(
            each.name, "" if each.gil is None else "main" if single else f"GIL {each.gil}"
        )
        for each in scenario.threads
    ]
    # Scripts that run once may have ended earlier.
    end_ns = round(min(scenario.end_ns, outcome.told["ended_ns"]))
    found = Timeline(title, threads, end_ns, round(scenario.begin_ns))
    # Under `ticks` a waiting thread does not request a drop, so there is no switch interval.
    intervals_ns = {round(gil.switch_interval_ns) for gil in scenario.gils if gil.policy != TICKS}
    found.switch_interval_ns = intervals_ns.pop() if len(intervals_ns) == 1 else 0
    events = outcome.told["timeline"]
    found.lost = outcome.told["timeline_lost"]
    if found.lost and events:
        # The events after the last one that was kept are unknown.
        found.end_ns = round(events[-1][0])
    holders: dict[int, int] = {}
    # The begin of each current phase, by thread and kind.
    began: dict[tuple[int, str], int] = {}
    for at, thread, what in events:
        at_ns = round(at)
        gil = scenario.threads[thread].gil
        if what == ASK:
            holder = -1 if gil is None else holders.get(gil, -1)
            found.drop_requests.append(DropRequest(at_ns, thread, holder))
        if what in ENDS:
            kind, how = ENDS[what]
            began_ns = began.pop((thread, kind), None)
            # A take may come without a wait.
            if began_ns is not None:
                found.spans.append(Span(kind, thread, began_ns, at_ns, how))
        if what in BEGINS:
            began.setdefault((thread, BEGINS[what]), at_ns)
        if gil is not None and what == "take":
            holders[gil] = thread
    for (thread, kind), began_ns in began.items():
        found.spans.append(Span(kind, thread, began_ns, found.end_ns, UNFINISHED))
    found.spans.sort(key=lambda span: (span.from_ns, span.thread))
    return found
