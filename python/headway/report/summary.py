"""One line of plain words on what a GIL report means.

Each sentence is chosen by a rule on the figures that it then names, so that a reader can check it
against the table. No sentence names a cause that the figures do not show.
"""

from __future__ import annotations

from headway.report import columns, processes, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.report.model import FreeThreading, GilReport, GilRow, ThreadRow

# A thread that waited for less than this part of the GIL's lifetime hardly waited, or a little.
HARDLY, LITTLE = 0.01, 0.1
# "Most" of something: of waiting time, of held time.
MOST = 0.5
# Shorter answers to a drop request are not worth a sentence: the kernel runs others now and then.
SLOW_ANSWER_S = 0.01
# A thread that uses so much CPU time before it answers does not run Python code, which takes
# microseconds; a part of this may be the kernel's own work, and a virtual machine's.
UNHEARD_CPU_S = 0.005


def sentence(report: GilReport) -> str:
    """What happened in the process whose threads waited most: the program or one of its
    children."""
    everyone = list(report.processes())
    worst = max(everyone, key=_waiting_s)
    said = _sentence_of(worst)
    if worst is report:
        return said
    title = processes.title(worst)
    return f"Of {len(everyone):,} processes, {title} waited most. {said}"


def _waiting_s(process: GilReport) -> tuple[float, float]:
    """For GILs, and where there is none, for locks and events."""
    waited_s = sum(thread.waited_s for thread in process.threads)
    parks = process.free_threading
    return waited_s, parks.parked.sum_s if parks else 0.0


def _sentence_of(report: GilReport) -> str:
    """What happened on the GIL of one process that was waited for most."""
    gils = [gil for gil in report.gils if gil.takes]
    gil = max(gils, key=lambda each: each.wait.sum_s, default=None)
    waits = gil.wait.count if gil else 0
    parked = _parked(report.free_threading)
    if report.gil == "disabled" and not waits:
        came_on = units.seconds(sum(each.held_s for each in gils))
        during = f"; it came on for {came_on} in all" if gils else ""
        said = f"The GIL is disabled (free-threaded): there is nothing to wait for{during}."
        return said if parked is None else f"{said} {parked}"
    if gil is None:
        return "No thread took the GIL while it was watched."
    threads = report.threads_of(gil)
    if not waits or not threads:
        return f"No waiting: every take found the GIL free; {_held(gil)}"
    return _of_waits(gil, threads, report.switch_interval_s)


def _parked(parks: FreeThreading | None) -> str | None:
    """Which thread of a free-threaded build waited most for locks and events."""
    if not parks or not parks.parked.count:
        return None
    most = max(parks.threads, key=lambda row: row.parked.sum_s)
    time, number = units.seconds(most.parked.sum_s), most.parked.count
    return (
        f"For locks and events {_name(most.name, most.folded)} waited most: {time}, "
        f"in {units.number(number, 'wait')}."
    )


def scheduling(
    preemptions: int, longest_io_bound_s: float | None, longest_cpu_bound_s: float | None
) -> str:
    """The work of a policy on a GIL: preemptions, and the longest wait of each class of threads."""
    return (
        f"{units.number(preemptions, 'preemption')}; longest wait: "
        f"I/O-bound {units.seconds(longest_io_bound_s)}, "
        f"CPU-bound {units.seconds(longest_cpu_bound_s)}"
    )


def unanswered(report: GilReport) -> str:
    """Which thread kept the GIL longest after it was asked to drop it, if that was long; or "".
    Children count too.

    Python code answers a drop request within microseconds of its own CPU time, so a holder that
    used more is in C code. One that did not use it was off the processor: the kernel ran others, or
    a call blocked with the GIL held, which cannot be told apart.
    """
    slow = [(row, process) for process in report.processes() for row in _slow(process)]
    if not slow:
        return ""
    in_c = [each for each in slow if (each[0].longest_unanswered_cpu_s or 0) >= UNHEARD_CPU_S]
    row, process = max(in_c or slow, key=lambda each: each[0].longest_unanswered_s or 0.0)
    name = columns.name(row.name)
    if process is not report:
        name += f" of {processes.title(process)}"
    others = f" ({units.number(len(slow) - 1, 'more thread')} did so too)" if slow[1:] else ""
    kept = (
        f"{name} kept the GIL for {units.seconds(row.longest_unanswered_s)} after it was asked to "
        f"drop it{others}"
    )
    cpu_s = row.longest_unanswered_cpu_s
    if cpu_s is None:
        return f"{kept}."
    if in_c:
        return (
            f"{kept}, and used up to {units.seconds(cpu_s)} of CPU time after a request: held by a "
            "call that cannot be preempted (C code)."
        )
    return (
        f"{kept}, but used at most {units.seconds(cpu_s)} of CPU time after a request: it was off "
        "the processor, because others ran, or in a call that blocks and keeps the GIL."
    )


def _slow(process: GilReport) -> list[ThreadRow]:
    """The threads of a process with a long answer."""
    limit_s = SLOW_ANSWER_S
    if process.policy == "interval":
        limit_s = max(limit_s, 2 * (process.switch_interval_s or 0.0))
    return [row for row in process.threads if (row.longest_unanswered_s or 0.0) >= limit_s]


def _of_waits(gil: GilRow, threads: list[ThreadRow], interval_s: float | None) -> str:
    wait = gil.wait
    waiter = max(threads, key=lambda thread: thread.waited_s)
    waited = (
        f"{_thread(waiter)} waited {units.seconds(waiter.waited_s)} of {units.seconds(gil.wall_s)}"
    )
    if waiter.waited_s < LITTLE * gil.wall_s:
        much = "Hardly any" if waiter.waited_s < HARDLY * gil.wall_s else "A little"
        longest = units.seconds(wait.max_s)
        return f"{much} waiting: {waited}, the longest wait was {longest}; {_held(gil)}"
    number = units.number(waiter.wait.count, "wait")
    holders = _holders(threads)
    if not interval_s:
        return f"Waiting: {waited}, in {number}, while {holders} held the GIL most."
    # A wait that met a drop request of its own is never shorter than the interval.
    if wait.time_above_s(interval_s) < MOST * wait.sum_s:
        return (
            f"Short waits: {waited}, in {number}, most of it in waits shorter than the switch "
            f"interval ({units.seconds(interval_s)}); {_held(gil)}"
        )
    stubborn = max(threads, key=lambda thread: thread.hold.time_above_s(2 * interval_s))
    if _kept_asking(gil, interval_s) and stubborn.hold.time_above_s(2 * interval_s):
        return (
            f"Long holds: {_thread(stubborn)} kept the GIL for up to "
            f"{units.seconds(stubborn.hold.max_s)} at a time, and drop requests, due after a "
            f"switch interval of {units.seconds(interval_s)}, went unanswered; {waited}."
        )
    length = _about_intervals(waiter.wait.p50_s or 0.0, interval_s)
    holder = max(threads, key=lambda thread: thread.held_s)
    if waiter is not holder and _gives_way(waiter) and waiter.held_s < holder.held_s / 4:
        return (
            f"The convoy effect: {waited}, in {number} of {length}, for a GIL that {holders} held."
        )
    return f"Turns: {waited}, in {number} of {length}, while {holders} held the GIL most."


def _kept_asking(gil: GilRow, interval_s: float) -> bool:
    """Whether most waiting was in waits of over two intervals, with drop requests that no drop
    followed: not turns among many threads, since each of their drops begins an interval anew."""
    long_waits = gil.wait.time_above_s(2 * interval_s) > MOST * gil.wait.sum_s
    return long_waits and gil.drop_requests > 2 * max(gil.forced_drops, 1)


def _gives_way(thread: ThreadRow) -> bool:
    """Whether nearly all drops of a thread are its own doing."""
    return thread.voluntary_drops > 0.9 * (thread.voluntary_drops + thread.forced_drops)


def _held(gil: GilRow) -> str:
    share = 100 * gil.held_s / gil.wall_s if gil.wall_s else 0.0
    return f"the GIL was held {share:.0f} % of the time."


def _thread(thread: ThreadRow) -> str:
    return _name(thread.name, thread.folded)


def _name(name: str, folded: int) -> str:
    """A thread's name, or the number of ended threads that a row adds up."""
    name = columns.name(name)
    return name if folded <= 1 else f"{folded:,} ended threads ({name})"


def _holders(threads: list[ThreadRow]) -> str:
    """The thread that held the GIL most, or how many did about as much."""
    ranked = sorted(threads, key=lambda thread: -thread.held_s)
    equal = [thread for thread in ranked if thread.held_s > ranked[0].held_s / 4]
    return f"{len(equal)} threads" if len(equal) > 1 else _thread(ranked[0])


def _about_intervals(wait_s: float, interval_s: float) -> str:
    multiple = round(wait_s / interval_s)
    if multiple <= 1:
        return f"about one switch interval ({units.seconds(interval_s)})"
    return f"about {multiple} switch intervals of {units.seconds(interval_s)}"
