"""The events of an outcome as a timeline, as `headway run --trace` has one of a real run.

Pure. It knows nothing of how a timeline is drawn.
"""

from __future__ import annotations

from headway.simulate.scenario import Outcome, Scenario
from headway.timeline.timeline import (
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

BEGINS = {
    "wait": WAIT,
    "take": HOLD,
    "forced_wait": FORCED_WAIT,
    "run": RUNNING,
    "begin": REQUEST,
}
# What ends, and how a hold did.
ENDS = {
    "take": (WAIT, ""),
    "drop": (HOLD, VOLUNTARY),
    "forced_drop": (HOLD, FORCED),
    "forced_wait_over": (FORCED_WAIT, ""),
    "stop": (RUNNING, ""),
    "end": (REQUEST, ""),
}
ASK = "ask"


def timeline(title: str, scenario: Scenario, outcome: Outcome) -> Timeline:
    """Of the scenario's window."""
    single = len(scenario.gils) == 1
    threads = [
        TimelineThread(
            each.name, "" if each.gil is None else "main" if single else f"GIL {each.gil}"
        )
        for each in scenario.threads
    ]
    found = Timeline(title, threads, round(scenario.end_ns), round(scenario.begin_ns))
    found.lost = outcome.told["timeline_lost"]
    holders = holders_at_begin(scenario, outcome)
    # When what is under way began, by thread and kind.
    began: dict[tuple[int, str], int] = {}
    known: set[tuple[int, str]] = set()
    for at, thread, what in outcome.told["timeline"]:
        at_ns = round(at)
        gil = scenario.threads[thread].gil
        if what == ASK:
            holder = -1 if gil is None else holders.get(gil, -1)
            found.drop_requests.append(DropRequest(at_ns, thread, holder))
        if what in ENDS:
            kind, how = ENDS[what]
            began_ns = began.pop((thread, kind), None)
            # Nobody saw the begin of what was under way at the window's; a take needs no wait.
            if began_ns is None and (thread, kind) not in known and what != "take":
                began_ns = found.begin_ns
            if began_ns is not None:
                found.spans.append(Span(kind, thread, began_ns, at_ns, how))
            known.add((thread, kind))
        if what in BEGINS:
            began.setdefault((thread, BEGINS[what]), at_ns)
            known.add((thread, BEGINS[what]))
        if gil is not None and what == "take":
            holders[gil] = thread
    for (thread, kind), began_ns in began.items():
        found.spans.append(Span(kind, thread, began_ns, found.end_ns, UNFINISHED))
    found.spans.sort(key=lambda span: (span.from_ns, span.thread))
    return found


def holders_at_begin(scenario: Scenario, outcome: Outcome) -> dict[int, int]:
    """By GIL, as far as it can be told: whoever drops it before anybody takes it."""
    first: dict[int, int | None] = {}
    for _, thread, what in outcome.told["timeline"]:
        gil = scenario.threads[thread].gil
        if gil is not None and gil not in first:
            if what in ("drop", "forced_drop"):
                first[gil] = thread
            elif what == "take":
                first[gil] = None
    return {gil: thread for gil, thread in first.items() if thread is not None}
