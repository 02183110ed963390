"""One line of plain words on what a GIL report means.

Works on the dict of schema 1 alone. Each sentence is chosen by a rule on the figures that it then
names, so that a reader can check it against the table; none of them guesses at causes that the
figures do not show.
"""

from __future__ import annotations

from headway.report import columns, processes, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A thread that waited for less than this part of the GIL's lifetime hardly waited, or a little.
HARDLY, LITTLE = 0.01, 0.1
# "Most" of something: of waiting time, of held time.
MOST = 0.5
# Shorter answers to a drop request are not worth a sentence: the kernel runs others now and then.
SLOW_ANSWER_S = 0.01
# A thread that uses so much CPU time before it answers does not run Python code, which takes
# microseconds; a part of this may be the kernel's own work, and a virtual machine's.
UNHEARD_CPU_S = 0.005


def sentence(report: dict[str, Any]) -> str:
    """What happened in the process whose threads waited most: the program or one of its
    children."""
    everyone = list(processes.all_of(report))
    worst = max(everyone, key=_waiting_s)
    said = _sentence_of(worst)
    if worst is report:
        return said
    title = processes.title(worst)
    return f"Of {len(everyone):,} processes, {title} waited most. {said}"


def _waiting_s(process: dict[str, Any]) -> tuple[float, float]:
    """For GILs, and where there is none, for locks and events."""
    waited_s = sum(float(thread["waited"]) for thread in process["threads"])
    parks = process.get("free_threading")
    return waited_s, float(parks["parked"]["sum"]) if parks else 0.0


def _sentence_of(report: dict[str, Any]) -> str:
    """What happened on the GIL of one process that was waited for most."""
    gils = [gil for gil in report["gils"] if gil["takes"]]
    gil = max(gils, key=lambda each: float(each["wait"]["sum"]), default=None)
    waits = gil["wait"]["count"] if gil else 0
    parked = _parked(report.get("free_threading"))
    if report["gil"] == "disabled" and not waits:
        came_on = units.seconds(sum(float(each["held"]) for each in gils))
        during = f"; it came on for {came_on} in all" if gils else ""
        said = f"The GIL is disabled (free-threaded): there is nothing to wait for{during}."
        return said if parked is None else f"{said} {parked}"
    if gil is None:
        return "No thread took the GIL while it was watched."
    threads = [thread for thread in report["threads"] if thread["gil"] == gil["id"]]
    if not waits or not threads:
        return f"No waiting: every take found the GIL free; {_held(gil)}"
    return _of_waits(gil, threads, report["switch_interval"])


def _parked(parks: dict[str, Any] | None) -> str | None:
    """Which thread of a free-threaded build waited most for locks and events."""
    if not parks or not parks["parked"]["count"]:
        return None
    most = max(parks["threads"], key=lambda row: float(row["parked"]["sum"]))
    time, number = units.seconds(most["parked"]["sum"]), most["parked"]["count"]
    return (
        f"For locks and events {_name(most)} waited most: {time}, "
        f"in {units.number(number, 'wait')}."
    )


def scheduling(gil: dict[str, Any]) -> str:
    """What a policy did on one GIL: how often it preempted, and how long each class waited."""
    longest = ", ".join(
        f"{label} {units.seconds(gil.get(key))}"
        for label, key in (
            ("I/O-bound", "longest_wait_io_bound"),
            ("CPU-bound", "longest_wait_cpu_bound"),
        )
    )
    return f"{units.number(gil['preemptions'], 'preemption')}; longest wait: {longest}"


def unanswered(report: dict[str, Any]) -> str:
    """Which thread kept the GIL longest after it was asked to drop it, if that was long; or "".
    Children count too.

    Python code answers a drop request within microseconds of its own CPU time, so a holder that
    used more is in C code. One that did not use it was off the processor: the kernel ran others, or
    a call blocked with the GIL held, which cannot be told apart.
    """
    slow = [(row, process) for process in processes.all_of(report) for row in _slow(process)]
    if not slow:
        return ""
    in_c = [each for each in slow if (each[0].get("longest_unanswered_cpu") or 0) >= UNHEARD_CPU_S]
    row, process = max(in_c or slow, key=lambda each: float(each[0]["longest_unanswered"]))
    name = columns.name(row["name"])
    if process is not report:
        name += f" of {processes.title(process)}"
    others = f" ({units.number(len(slow) - 1, 'more thread')} did so too)" if slow[1:] else ""
    kept = (
        f"{name} kept the GIL for {units.seconds(row['longest_unanswered'])} after it was asked to "
        f"drop it{others}"
    )
    cpu_s = row.get("longest_unanswered_cpu")
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


def _slow(process: dict[str, Any]) -> list[dict[str, Any]]:
    """The threads of a process with a long answer."""
    limit_s = SLOW_ANSWER_S
    if process["policy"] == "interval":
        limit_s = max(limit_s, 2 * (process["switch_interval"] or 0.0))
    rows = process["threads"]
    return [row for row in rows if (row.get("longest_unanswered") or 0.0) >= limit_s]


def _of_waits(gil: dict[str, Any], threads: list[dict[str, Any]], interval_s: float | None) -> str:
    wait = gil["wait"]
    waiter = max(threads, key=lambda thread: float(thread["waited"]))
    waited = (
        f"{_name(waiter)} waited {units.seconds(waiter['waited'])} of {units.seconds(gil['wall'])}"
    )
    if waiter["waited"] < LITTLE * gil["wall"]:
        much = "Hardly any" if waiter["waited"] < HARDLY * gil["wall"] else "A little"
        longest = units.seconds(wait["max"])
        return f"{much} waiting: {waited}, the longest wait was {longest}; {_held(gil)}"
    number = units.number(waiter["wait"]["count"], "wait")
    holders = _holders(threads)
    if not interval_s:
        return f"Waiting: {waited}, in {number}, while {holders} held the GIL most."
    # A wait that met a drop request of its own is never shorter than the interval.
    if time_above(wait, interval_s) < MOST * wait["sum"]:
        return (
            f"Short waits: {waited}, in {number}, most of it in waits shorter than the switch "
            f"interval ({units.seconds(interval_s)}); {_held(gil)}"
        )
    stubborn = max(threads, key=lambda thread: time_above(thread["hold"], 2 * interval_s))
    if _kept_asking(gil, interval_s) and time_above(stubborn["hold"], 2 * interval_s):
        return (
            f"Long holds: {_name(stubborn)} kept the GIL for up to "
            f"{units.seconds(stubborn['hold']['max'])} at a time, and drop requests, due after a "
            f"switch interval of {units.seconds(interval_s)}, went unanswered; {waited}."
        )
    length = _about_intervals(waiter["wait"]["p50"], interval_s)
    holder = max(threads, key=lambda thread: float(thread["held"]))
    if waiter is not holder and _gives_way(waiter) and waiter["held"] < holder["held"] / 4:
        return (
            f"The convoy effect: {waited}, in {number} of {length}, for a GIL that {holders} held."
        )
    return f"Turns: {waited}, in {number} of {length}, while {holders} held the GIL most."


def _kept_asking(gil: dict[str, Any], interval_s: float) -> bool:
    """Whether most waiting was in waits of over two intervals, with drop requests that no drop
    followed: not turns among many threads, since each of their drops begins an interval anew."""
    long_waits = time_above(gil["wait"], 2 * interval_s) > MOST * gil["wait"]["sum"]
    return long_waits and bool(gil["drop_requests"] > 2 * max(gil["forced_drops"], 1))


def _gives_way(thread: dict[str, Any]) -> bool:
    """Whether nearly all drops of a thread are its own doing."""
    drops = thread["voluntary_drops"] + thread["forced_drops"]
    return bool(thread["voluntary_drops"] > 0.9 * drops)


def time_above(histogram: dict[str, Any], limit_s: float) -> float:
    """Seconds of `histogram` in the buckets that end above `limit_s`, at most its sum."""
    total = sum(upper_s * count for upper_s, count in histogram["buckets"] if upper_s > limit_s)
    return min(float(total), float(histogram["sum"]))


def _held(gil: dict[str, Any]) -> str:
    share = 100 * gil["held"] / gil["wall"] if gil["wall"] else 0.0
    return f"the GIL was held {share:.0f} % of the time."


def _name(thread: dict[str, Any]) -> str:
    """A thread's name, or how many threads that ended a row adds up."""
    name = columns.name(thread["name"])
    threads = thread.get("folded") or 1
    return name if threads == 1 else f"{threads:,} ended threads ({name})"


def _holders(threads: list[dict[str, Any]]) -> str:
    """The thread that held the GIL most, or how many did about as much."""
    ranked = sorted(threads, key=lambda thread: -float(thread["held"]))
    equal = [thread for thread in ranked if thread["held"] > ranked[0]["held"] / 4]
    return f"{len(equal)} threads" if len(equal) > 1 else _name(ranked[0])


def _about_intervals(wait_s: float, interval_s: float) -> str:
    multiple = round(wait_s / interval_s)
    if multiple <= 1:
        return f"about one switch interval ({units.seconds(interval_s)})"
    return f"about {multiple} switch intervals of {units.seconds(interval_s)}"
