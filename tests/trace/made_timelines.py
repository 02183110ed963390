"""Timelines made by hand, true to what take_gil and drop_gil do, in their order."""

from __future__ import annotations

from headway.trace.timeline import (
    FORCED,
    FORCED_WAIT,
    HOLD,
    REQUEST,
    VOLUNTARY,
    WAIT,
    DropRequest,
    Span,
    Timeline,
    TimelineThread,
)

US, MS = 1_000, 1_000_000
INTERVAL_NS = 5 * MS


def convoy(requests: int = 4, cpu_threads: int = 1) -> Timeline:
    """An echo thread beside some that compute. It waits until each of these has had its turn."""
    threads = [TimelineThread(f"compute-{place}", "main") for place in range(cpu_threads)]
    threads.append(TimelineThread("echo", "main"))
    echo = cpu_threads
    made = Timeline("echo beside computing", threads, 0, switch_interval_ns=INTERVAL_NS)
    spans, now = made.spans, 0
    held_since, holder = 0, 0
    waiting_since = dict.fromkeys(range(1, cpu_threads), 0)
    for _ in range(requests):
        # Its message is there 300 us later; it wants the GIL, and joins those that wait.
        now += 300 * US
        request_ns = waiting_since[echo] = now
        while True:
            # The longest waiting thread gets it, after a switch interval in which no thread did.
            waiter = min(waiting_since, key=lambda each: (waiting_since[each], each))
            asked_ns = max(waiting_since[waiter], held_since) + INTERVAL_NS + 60 * US
            dropped_ns = asked_ns + 4 * US
            taken_ns = dropped_ns + 30 * US
            made.drop_requests.append(DropRequest(asked_ns, waiter, holder))
            spans.append(Span(HOLD, holder, held_since, dropped_ns, FORCED))
            spans.append(Span(FORCED_WAIT, holder, dropped_ns, taken_ns + 2 * US))
            spans.append(Span(WAIT, waiter, waiting_since.pop(waiter), taken_ns))
            waiting_since[holder] = taken_ns + 2 * US
            held_since, holder = taken_ns, waiter
            if waiter == echo:
                break
        # It takes the byte, drops the GIL to send it, takes it again, and drops it to receive.
        sent_ns = taken_ns + 12 * US
        spans.append(Span(HOLD, echo, taken_ns, sent_ns, VOLUNTARY))
        spans.append(Span(HOLD, echo, sent_ns + 9 * US, sent_ns + 14 * US, VOLUNTARY))
        spans.append(Span(REQUEST, echo, request_ns, sent_ns + 14 * US))
        holder = min(waiting_since, key=lambda each: (waiting_since[each], each))
        now = held_since = sent_ns + 14 * US + 35 * US
        spans.append(Span(WAIT, holder, waiting_since.pop(holder), held_since))
    made.end_ns = now + 400 * US
    spans.append(Span(HOLD, holder, held_since, made.end_ns))
    for place, since_ns in waiting_since.items():
        spans.append(Span(WAIT, place, since_ns, made.end_ns))
    spans.sort(key=lambda span: (span.from_ns, span.thread))
    return made


def quick(requests: int = 1000) -> Timeline:
    """An echo thread that gets the GIL at once, as under `priority`: 20 us later, for 10 us."""
    threads = [TimelineThread("compute", "main"), TimelineThread("echo", "main")]
    made = Timeline("echo first", threads, requests * 100 * US, switch_interval_ns=INTERVAL_NS)
    spans, held_since = made.spans, 0
    for place in range(requests):
        now = place * 100 * US + 40 * US
        made.drop_requests.append(DropRequest(now + US, 1, 0))
        spans.append(Span(HOLD, 0, held_since, now + 5 * US, FORCED))
        spans.append(Span(FORCED_WAIT, 0, now + 5 * US, now + 21 * US))
        spans.append(Span(WAIT, 1, now, now + 20 * US))
        spans.append(Span(HOLD, 1, now + 20 * US, now + 30 * US, VOLUNTARY))
        spans.append(Span(WAIT, 0, now + 21 * US, now + 35 * US))
        held_since = now + 35 * US
    spans.append(Span(HOLD, 0, held_since, made.end_ns))
    spans.sort(key=lambda span: (span.from_ns, span.thread))
    return made
