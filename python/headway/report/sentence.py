"""Explains a GIL report in one line of plain words.

The sentence expresses the finding of `diagnosis`. It names the figures that it follows from, so
that a reader can check it against the table, and names no cause that the figures do not show.
"""

from __future__ import annotations

from headway.report import columns, diagnosis, event_loops, processes, thresholds, units
from headway.report.diagnosis import Contention, Parking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.report.model import (
        FreeThreading,
        GilReport,
        GilRow,
        ParkedThreadRow,
        ThreadRow,
    )

# The share of the time waited that is called "most".
MOST = 0.5
# Less waiting than this in all is not worth a policy, or a table in place of the first process's.
NOTICED_S = 0.05


def sentence(report: GilReport) -> str:
    """Describes one process of the program and its children: that whose threads waited most, or,
    if they hardly waited, that with the latest event loop."""
    chosen = _latest(report) or waited_most(report)
    said = _sentence_of(chosen)
    if chosen is report:
        return said
    title, count = processes.title(chosen), sum(1 for _ in report.processes())
    which = "waited most" if chosen is waited_most(report) else "has the latest event loop"
    return f"Of {count:,} processes, {title} {which}. {said}"


def waited_most(report: GilReport) -> GilReport:
    """The process whose threads waited most."""
    return max(report.processes(), key=_waiting_s)


def shown(report: GilReport) -> GilReport:
    """The process to show in detail: that whose threads waited most, unless it is a little; then
    that with the latest event loop."""
    latest = _latest(report)
    if latest is not None:
        return latest
    worst = waited_most(report)
    return worst if _is_noticed(worst) else report


def _is_noticed(process: GilReport) -> bool:
    little_s = max(NOTICED_S, thresholds.LITTLE_WAITING.value * process.wall_s)
    return max(_waiting_s(process)) >= little_s


def _latest(report: GilReport) -> GilReport | None:
    """The process with the latest event loop; None if none is late, or the waits of another process
    are noticed."""
    worst = waited_most(report)
    if _is_noticed(worst):
        return None
    latest = max(report.processes(), key=_late_s)
    return latest if _late_s(latest) else None


def _late_s(process: GilReport) -> float:
    row = event_loops.late(process)
    return 0.0 if row is None else row.late_s + (row.iterating_now_s or 0.0)


def _waiting_s(process: GilReport) -> tuple[float, float]:
    """The time waited for GILs, then the time waited for locks and events, as a sort key."""
    waited_s = sum(thread.waited_s + (thread.waiting_now_s or 0.0) for thread in process.threads)
    parks = process.free_threading
    return waited_s, parks.parked.sum_s if parks else 0.0


def _sentence_of(report: GilReport) -> str:
    """Describes one process: what limits its threads, and its latest event loop."""
    limited = _limited(report)
    late = event_loops.sentence(report, besides=limited is not None)
    if limited is None:
        return late or _not_limited(report)
    return limited if late is None else f"{limited} {late}"


def _waited_for_most(report: GilReport) -> GilRow | None:
    """The GIL of one process that threads waited for longest."""
    gils = [gil for gil in report.gils if gil.takes]
    return max(gils, key=lambda each: each.wait.sum_s, default=None)


def _limited(report: GilReport) -> str | None:
    """Describes what limits the threads of one process; None if nothing does."""
    gil = _waited_for_most(report)
    parks = report.free_threading
    if report.gil == "disabled" and parks is not None:
        limited = _of_parks(parks, report.wall_s)
        if limited is not None:
            return limited
    kept = _still_kept(report)
    if kept is not None:
        return kept
    taken = _cores_taken(report, gil)
    if taken is not None and gil is not None:
        return taken + _besides_taken_cores(report, gil)
    if gil is None or not gil.wait.count:
        return None
    threads = report.threads_of(gil)
    if not threads:
        return None
    contention = contention_of(gil, threads, report)
    found = diagnosis.findings(contention)
    if not found:
        return None
    shown = _Waits(gil, threads, report, contention)
    said = shown.first(found[0])
    if found == [diagnosis.GIL_BOUND]:
        said += " No policy helps; more processes do."
    return said + shown.besides(found[1:])


def _not_limited(report: GilReport) -> str:
    """Describes the waits of a process that nothing limits."""
    gil = _waited_for_most(report)
    waits = gil.wait.count if gil else 0
    if report.gil == "disabled" and not waits:
        parked = _parked(report.free_threading)
        came_on = units.seconds(sum(each.held_s for each in report.gils))
        during = f"; it came on for {came_on} in all" if _waited_for_most(report) else ""
        said = f"The GIL is disabled (free-threaded): there is nothing to wait for{during}."
        return said if parked is None else f"{said} {parked}"
    if gil is None:
        return "No thread took the GIL while it was watched."
    threads = report.threads_of(gil)
    if not waits or not threads:
        said = f"No waiting: every take found the GIL free; {_held(gil)}"
        # Those of one thread make nobody wait, except what the thread itself would do next.
        longest_s = gil.hold.max_s or 0.0
        if longest_s < thresholds.SLOW_ANSWER_S.value:
            return said
        return f"{said.removesuffix('.')}, for up to {units.seconds(longest_s)} at a time."
    return _of_few_waits(gil, threads, report)


def _cores_taken(report: GilReport, gil: GilRow | None) -> str | None:
    """Names the other programs on the cores, if it is they who make this one slow."""
    machine = report.machine
    if machine is None or gil is None or not report.wall_s:
        return None
    others_s = max(0.0, machine.busy_s - machine.own_s)
    used_s = gil.held_s + gil.handoff_s
    if any(
        diagnosis.is_asleep(_kept_s(thread), thread.longest_unanswered_cpu_s)
        for thread in report.threads_of(gil)
    ):
        used_s -= gil.hold.time_above_s(thresholds.CORE_WAIT_S.value)
    if not diagnosis.lacks_cores(
        wall_s=report.wall_s,
        used_s=used_s,
        cpu_s=machine.cpu_s,
        others_s=others_s,
        busy_s=machine.busy_s,
        cores=machine.cores,
    ):
        return None
    return (
        f"Other programs take the cores: they used {others_s / report.wall_s:.1f} of "
        f"{units.number(machine.cores, 'core')}, and this one ran for "
        f"{units.seconds(machine.cpu_s)} of the {units.seconds(used_s)} in which one of its "
        "threads had the GIL or was next."
    )


def _besides_taken_cores(report: GilReport, gil: GilRow) -> str:
    """A sentence on the next finding. Holders without a core explain long holds and a full GIL."""
    threads = report.threads_of(gil)
    if not threads or not gil.wait.count:
        return ""
    contention = contention_of(gil, threads, report)
    own = (diagnosis.CONVOY, diagnosis.COLLECTION)
    found = [each for each in diagnosis.findings(contention) if each in own]
    return _Waits(gil, threads, report, contention).besides(found)


def _still_kept(report: GilReport) -> str | None:
    """Names a hold that had not ended, and the thread that waited for its end; None unless both
    were long."""
    limit_s = thresholds.LONG_HOLD_ALONE_S.value
    for gil in report.gils:
        threads = report.threads_of(gil)
        holder = max(threads, key=lambda thread: thread.holding_now_s or 0.0, default=None)
        waiter = max(threads, key=lambda thread: thread.waiting_now_s or 0.0, default=None)
        if holder is None or waiter is None:
            continue
        held_s, waited_s = holder.holding_now_s or 0.0, waiter.waiting_now_s or 0.0
        if min(held_s, waited_s) >= limit_s:
            return (
                f"A long hold that had not ended: {_thread(holder)} had kept the GIL for "
                f"{units.seconds(held_s)}; {_thread(waiter)} had waited {units.seconds(waited_s)} "
                "for it."
            )
    return None


def parking_of(parks: FreeThreading, wall_s: float) -> Parking:
    """The figures of a free-threaded process for the diagnosis of its threads."""
    return Parking(
        wall_s=wall_s,
        cpu_s=parks.cpu_s,
        contended_s=parks.parked.time_below_s(thresholds.LOCK_WAIT_S.value),
        stopped_s=parks.suspended.sum_s + parks.stopping.sum_s,
    )


def _of_parks(parks: FreeThreading, wall_s: float) -> str | None:
    """Names what limits the threads of a free-threaded process; None if nothing does."""
    parking = parking_of(parks, wall_s)
    finding = diagnosis.parking_finding(parking)
    if finding == diagnosis.STOPPED_WORLD:
        return (
            f"Stopped worlds limit what gets done: {parking.stopped:.1f} threads stood still on "
            f"average, or waited until others did; {_most(parks, _stopped_s)} lost most."
        )
    if finding == diagnosis.LOCK_CONTENTION:
        return (
            f"Lock contention limits what gets done: {parking.contending:.1f} threads waited on "
            "average for locks, or for events as short, less than "
            f"{units.seconds(thresholds.LOCK_WAIT_S.value)} at a time; "
            f"{_most(parks, _contended_s)} waited most."
        )
    return None


def _most(parks: FreeThreading, time_s: Callable[[ParkedThreadRow], float]) -> str:
    """The thread that lost most time, and how long."""
    row = max(parks.threads, key=time_s)
    return f"{_name(row.name, row.folded)}, with {units.seconds(time_s(row))},"


def _stopped_s(row: ParkedThreadRow) -> float:
    return row.suspended.sum_s + row.stopping.sum_s


def _contended_s(row: ParkedThreadRow) -> float:
    return row.parked.time_below_s(thresholds.LOCK_WAIT_S.value)


def _parked(parks: FreeThreading | None) -> str | None:
    """Names the thread of a free-threaded build that waited most for locks and events; None if no
    thread waited."""
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
    """The effects of a policy on a GIL: preemptions, and the longest wait of each thread class."""
    return (
        f"{units.number(preemptions, 'preemption')}; longest wait: "
        f"I/O-bound {units.seconds(longest_io_bound_s)}, "
        f"CPU-bound {units.seconds(longest_cpu_bound_s)}"
    )


def unanswered(report: GilReport) -> str:
    """Names the thread of the process or its children that kept the GIL longest after a drop
    request; "" if no thread kept it for long.

    Python code answers a drop request within microseconds of its own CPU time, so a holder that
    used more is in C code. A holder that used less was off the processor: either the kernel ran
    other threads or a call blocked with the GIL held. The counters do not distinguish the two.
    """
    slow = [
        (row, process, _slow_answer_s(process))
        for process in report.processes()
        for row in process.threads
        if (row.longest_unanswered_s or 0.0) >= _slow_answer_s(process)
    ]
    if not slow:
        return ""
    # The figures of a sentence are of one time from a request to the drop.
    in_c = [
        (row, process, row.unanswered_with_most_cpu_s, row.longest_unanswered_cpu_s)
        for row, process, limit_s in slow
        if (row.longest_unanswered_cpu_s or 0.0) >= thresholds.C_CODE_CPU_S.value
        and (row.unanswered_with_most_cpu_s or limit_s) >= limit_s
    ]
    off_core = [
        (row, process, row.longest_unanswered_s, row.cpu_in_longest_unanswered_s)
        for row, process, _ in slow
    ]
    row, process, kept_s, cpu_s = max(in_c or off_core, key=lambda each: each[2] or 0.0)
    name = columns.name(row.name)
    if process is not report:
        name += f" of {processes.title(process)}"
    others = f" ({units.number(len(slow) - 1, 'more thread')} did so too)" if slow[1:] else ""
    # A report of an earlier version may lack the time.
    time = "" if kept_s is None else f" for {units.seconds(kept_s)}"
    kept = f"{name} kept the GIL{time} after it was asked to drop it{others}"
    if cpu_s is None:
        return f"{kept}."
    if in_c:
        return (
            f"{kept}, and used {units.seconds(cpu_s)} of CPU time meanwhile: held by a call that "
            "cannot be preempted (C code)."
        )
    return (
        f"{kept}, but used {units.seconds(cpu_s)} of CPU time meanwhile: it was off the processor, "
        "because others ran, or in a call that blocks and keeps the GIL."
    )


def _slow_answer_s(process: GilReport) -> float:
    """The shortest time from a drop request to the drop that the report names, in seconds."""
    limit_s = thresholds.SLOW_ANSWER_S.value
    if process.policy == "interval":
        limit_s = max(limit_s, 2 * (process.switch_interval_s or 0.0))
    return limit_s


def _of_few_waits(gil: GilRow, threads: list[ThreadRow], report: GilReport) -> str:
    contention = contention_of(gil, threads, report)
    waiter = max(threads, key=_waited_s)
    waited = _waited(waiter, gil)
    if diagnosis.is_little(contention):
        hardly = contention.waiting < thresholds.HARDLY_WAITING.value
        return (
            f"{'Hardly any' if hardly else 'A little'} waiting: {waited}, the longest wait was "
            f"{units.seconds(gil.wait.max_s)}; {_held(gil)}"
        )
    number = units.number(waiter.wait.count, "wait")
    length = _length(gil, waiter, report.switch_interval_s)
    return f"Waiting: {waited}, in {number}{length}; {_held(gil)}"


class _Waits:
    """The words for each finding on the waits for a GIL, with its own figures."""

    def __init__(
        self, gil: GilRow, threads: list[ThreadRow], report: GilReport, contention: Contention
    ) -> None:
        self.gil = gil
        self.threads = threads
        self.policy = report.policy
        self.interval_s = report.switch_interval_s
        self.contention = contention

    def first(self, finding: str) -> str:
        """The sentence on the finding that explains most of the waiting."""
        waiter = max(self.threads, key=_waited_s)
        waited = _waited(waiter, self.gil)
        if finding == diagnosis.LONG_HOLD:
            share = _of_the_waiting(self.contention.waited_for_kept_share)
            return (
                f"Long holds: {self._kept()}, {share}; {waited}. No policy interrupts such a call: "
                "make it shorter, or move it to another process."
            )
        if finding == diagnosis.COLLECTION:
            share = _of_the_waiting(self.contention.collection_share)
            return (
                f"Garbage collection: {self._collected()}, {share}; {waited}. No policy helps; "
                "gc.freeze() after the start or a higher gc.set_threshold() does."
            )
        if finding == diagnosis.CONVOY:
            victim = self._victim()
            number, length = self._number_and_length(victim)
            return (
                f"The convoy effect: {_waited(victim, self.gil)}, in {number}{length}, for a GIL "
                f"that {_holders(self.threads)} held.{self._prevented()}"
            )
        number, length = self._number_and_length(waiter)
        return (
            f"The GIL limits what gets done: {waited}, in {number}{length}, while "
            f"{_holders(self.threads)} held the GIL most."
        )

    def besides(self, findings: list[str]) -> str:
        """The sentence on the finding that explains most of the rest; "" for nothing but equal
        work."""
        finding = next((each for each in findings if each != diagnosis.GIL_BOUND), None)
        if finding == diagnosis.LONG_HOLD:
            share = _of_the_waiting(self.contention.waited_for_kept_share)
            return f" Besides, {self._kept()}, {share}."
        if finding == diagnosis.COLLECTION:
            share = _of_the_waiting(self.contention.collection_share)
            return f" Besides, {self._collected()}, {share}."
        if finding == diagnosis.CONVOY:
            victim = self._victim()
            waited_s = units.seconds(_preventable_s(victim) or victim.waited_s)
            return (
                f" Besides, {_thread(victim)} waited {waited_s} behind CPU-bound threads, with "
                "short work."
                f"{self._prevented()}"
            )
        return ""

    def _kept(self) -> str:
        stubborn = max(self.threads, key=_kept_s)
        return (
            f"{_thread(stubborn)} kept the GIL for up to {units.seconds(_kept_s(stubborn))} after "
            "it was asked to drop it"
        )

    def _collected(self) -> str:
        collector = max(self.threads, key=lambda thread: thread.collected_s or 0.0)
        return (
            f"{_thread(collector)} collected garbage for {units.seconds(collector.collected_s)}, "
            f"up to {units.seconds(collector.longest_collection_s)} at a time"
        )

    def _victim(self) -> ThreadRow:
        """The thread with the most waiting that a policy could have prevented; where that is not
        known, with the most waiting."""
        return max(self.threads, key=lambda thread: (_preventable_s(thread), thread.waited_s))

    def _prevented(self) -> str:
        """The waiting that `priority` would prevent, if it is not on and the victim's waits are
        mostly of this kind."""
        preventable_s = sum(map(_preventable_s, self.threads))
        victim = self._victim()
        mostly = _preventable_s(victim) >= MOST * victim.waited_s
        if self.policy != "interval" or preventable_s < NOTICED_S or not mostly:
            return ""
        waited_s = units.seconds(self.gil.wait.sum_s)
        return (
            f" The policy priority would prevent {units.seconds(preventable_s)} of {waited_s} "
            "waited."
        )

    def _number_and_length(self, waiter: ThreadRow) -> tuple[str, str]:
        number = units.number(waiter.wait.count, "wait")
        return number, _length(self.gil, waiter, self.interval_s)


def _waited(waiter: ThreadRow, gil: GilRow) -> str:
    return (
        f"{_thread(waiter)} waited {units.seconds(waiter.waited_s)} of {units.seconds(gil.wall_s)}"
    )


def _of_the_waiting(share: float) -> str:
    return f"{100 * share:.0f} % of the waiting"


def _waited_s(thread: ThreadRow) -> float:
    return thread.waited_s


def _preventable_s(thread: ThreadRow) -> float:
    return thread.waited_preventable_s or 0.0


def _kept_s(thread: ThreadRow) -> float:
    return thread.longest_unanswered_s or 0.0


def contention_of(gil: GilRow, threads: list[ThreadRow], report: GilReport) -> Contention:
    """The figures of a GIL of the process for the diagnosis of its threads."""
    interval_s = report.switch_interval_s
    waiter = max(threads, key=_waited_s)
    kept_s, waited_for_kept_s = _long_holds(gil, threads, interval_s)
    divided = [thread for thread in threads if thread.waited_preventable_s is not None]
    if divided:
        kept_s = max(map(_kept_s, threads))
        # Without a long hold, holders that did not run lost their cores for a moment.
        off_core_s = sum(thread.waited_off_core_s or 0.0 for thread in divided)
        unanswered_s = sum(thread.waited_unanswered_s or 0.0 for thread in divided)
        waited_for_kept_s = unanswered_s + (off_core_s if waited_for_kept_s else 0.0)
    # Under a policy, waits of short work count only if they last for whole switch intervals.
    preventable_s = None
    if divided and report.policy == "interval":
        preventable_s = sum(map(_preventable_s, divided))
    whole_s = diagnosis.whole_interval_s(interval_s or 0.0)
    return Contention(
        interval_s=interval_s,
        wall_s=gil.wall_s,
        used_s=gil.held_s + gil.handoff_s,
        waited_s=gil.wait.sum_s,
        held_s=gil.held_s,
        interval_waits_s=gil.wait.time_above_s(whole_s),
        interval_holds_s=gil.hold.time_above_s(whole_s),
        needed_s=waiter.hold.p50_s or 0.0,
        delayed_s=waiter.wait.p50_s,
        kept_s=kept_s,
        waited_for_kept_s=waited_for_kept_s,
        preventable_s=preventable_s,
        collection_s=sum(thread.waited_collection_s or 0.0 for thread in divided),
        longest_collection_s=max(thread.longest_collection_s or 0.0 for thread in threads),
    )


def _long_holds(
    gil: GilRow, threads: list[ThreadRow], interval_s: float | None
) -> tuple[float, float]:
    """The longest time after a drop request, if there are long holds, and an estimate of the waits
    for all of them: the counters do not record which wait was for which hold."""
    limits_s = [
        diagnosis.long_hold_s(interval_s, thread.longest_unanswered_cpu_s)
        for thread in threads
        if _kept_s(thread) >= diagnosis.long_hold_s(interval_s, thread.longest_unanswered_cpu_s)
    ]
    if not limits_s:
        return 0.0, 0.0
    # Such a wait is as long as its hold, and all waits for one hold add up to the hold times the
    # waiting threads.
    limit_s = min(limits_s)
    waiting = max(1.0, gil.wait.sum_s / gil.wall_s)
    waited_s = min(gil.wait.time_above_s(limit_s), gil.hold.time_above_s(limit_s) * waiting)
    return max(map(_kept_s, threads)), waited_s


def _length(gil: GilRow, waiter: ThreadRow, interval_s: float | None) -> str:
    if not interval_s:
        return ""
    if gil.wait.time_above_s(interval_s) < MOST * gil.wait.sum_s:
        interval = units.seconds(interval_s)
        return f", most of it in waits shorter than the switch interval ({interval})"
    return f" of {_about_intervals(waiter.wait.p50_s or 0.0, interval_s)}"


def _held(gil: GilRow) -> str:
    share = 100 * gil.held_s / gil.wall_s if gil.wall_s else 0.0
    return f"the GIL was held {share:.0f} % of the time."


def _thread(thread: ThreadRow) -> str:
    return _name(thread.name, thread.folded)


def _name(name: str, folded: int) -> str:
    """A thread's name, or the number of ended threads that a row sums up."""
    name = columns.name(name)
    return name if folded <= 1 else f"{folded:,} ended threads ({name})"


def _holders(threads: list[ThreadRow]) -> str:
    """The thread that held the GIL most, or the number of threads that held it about equally."""
    ranked = sorted(threads, key=lambda thread: -thread.held_s)
    equal = [thread for thread in ranked if thread.held_s > ranked[0].held_s / 4]
    return f"{len(equal)} threads" if len(equal) > 1 else _thread(ranked[0])


def _about_intervals(wait_s: float, interval_s: float) -> str:
    multiple = round(wait_s / interval_s)
    if multiple <= 1:
        return f"about one switch interval ({units.seconds(interval_s)})"
    return f"about {multiple} switch intervals of {units.seconds(interval_s)}"
