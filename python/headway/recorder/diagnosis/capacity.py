"""Verdicts on cores and threads: cpu-limited, cpu-bound, saturated, io-bound."""

from __future__ import annotations

from headway.recorder.diagnosis import advice
from headway.recorder.diagnosis.contention import is_queued
from headway.recorder.diagnosis.inputs import Situation, most
from headway.recorder.diagnosis.verdict import Advice, Verdict, evidence, verdict
from headway.report import thresholds, units


def cpu_limited(situation: Situation) -> Verdict | None:
    """The cgroup's CPU limit throttles the processes."""
    throttled = float(situation.summary["throttled"])
    limit = most(situation.config["cpu_limit"], 0.0)
    use = situation.cpu / limit if limit else 0.0
    if throttled < thresholds.THROTTLED.value and use < thresholds.AT_LIMIT.value:
        return None
    badly = throttled >= thresholds.THROTTLED_BADLY.value
    if limit:
        of_limit = f" of the {limit:g} that the cgroup allows"
        more: Advice = {
            "try": f"a higher CPU limit (cpu.max), {2 * limit:g} cores instead of {limit:g}",
            "expect": f"up to twice the {advice.rate(situation.rps)} of now, as far as work is "
            "spread over so many cores; no throttling once less than the limit is used.",
        }
    else:
        of_limit, more = (
            "",
            {
                "try": "a higher CPU limit (cpu.max)",
                "expect": "no throttling once less than the limit is used.",
            },
        )
    return verdict(
        "cpu-limited",
        "critical" if badly else "warning",
        "The cgroup's CPU limit is in the way",
        f"{situation.cpu:.2f} cores{of_limit} are in use, and in {100 * throttled:.0f} % of its "
        "periods the cgroup was throttled: all its threads stop then, also the one that holds the "
        "GIL, for up to a tenth of a second. Waits and response times of this time are the "
        "limit's first of all.",
        situation,
        [
            evidence("share of periods throttled", throttled, "share", thresholds.THROTTLED),
            evidence("share of the limit in use", use, "share", thresholds.AT_LIMIT),
            evidence("CPU", situation.cpu, "cores", limit or None),
        ],
        [
            more,
            {
                "try": "fewer threads or processes, where the limit has to stay",
                "expect": "the same requests/s: the limit decides; but shorter bursts, so fewer "
                "requests that stand still in the middle.",
            },
        ],
    )


def cpu_bound(situation: Situation) -> Verdict | None:
    """All cores are in use, or all threads where several may compute at the same time."""
    if not situation.cores_known:
        return None
    cores, cpu = situation.cores, situation.cpu
    processes = max(1.0, situation.processes)
    parallel = situation.free_threading or situation.gil_count > 1
    # The processes can use all the cores, or as many as they have threads.
    threads = processes * max(1, situation.threads)
    if parallel and situation.serves and threads < cores:
        ceiling, what = threads, "threads"
    else:
        ceiling, what = cores, "cores"
    if cpu < thresholds.CORES_FULL.value * ceiling:
        return None
    queued = is_queued(situation)
    if what == "threads":
        suggestion = advice.more_threads(situation)
    else:
        cost = situation.cpu_per_request
        suggestion = {
            "try": "more cores, or less computing per request",
            "expect": f"each core carries {advice.rate(1 / cost)}"
            f"{advice.give_or_take(situation)}; more processes or threads on these cores only "
            "share them out anew."
            if cost
            else "more processes or threads on these cores only share them out anew.",
        }
    return verdict(
        "cpu-bound",
        "warning" if queued else "note",
        f"All {what} compute",
        f"{cpu:.2f} of {ceiling:g} {what} are in use on average. "
        + (
            "There is no GIL in the way: it is computing that takes the time. "
            if situation.free_threading
            else ""
        )
        + ("Requests queue for a thread." if queued else "Nobody queues for a thread yet."),
        situation,
        [
            evidence(f"CPU, of {ceiling:g} {what}", cpu, "cores", 0.9 * ceiling),
            evidence("waiting for the GIL, threads on average", situation.waiting, "threads"),
        ],
        advice.given(suggestion, None if situation.free_threading else advice.policy(situation)),
    )


def saturated(situation: Situation) -> Verdict | None:
    """All worker threads are busy."""
    busy = float(situation.summary["busy"])
    queued = is_queued(situation)
    if busy < thresholds.THREADS_FULL.value or not (
        queued or busy >= thresholds.THREADS_ALL_BUSY.value
    ):
        return None
    queue = situation.summary["queue"]
    waited = (
        f", and one request in twenty waits {units.seconds(queue['p95'])} for one"
        if (queue and queued)
        else ""
    )
    away = situation.away
    where = (
        f" In a request {100 * away:.0f} % of the time goes to waiting for something that is "
        "neither a core nor the GIL."
        if away is not None
        else ""
    )
    # Threads that compute need cores and GILs, not more threads.
    computing = away is not None and away < 1 - thresholds.AWAY.value
    return verdict(
        "saturated",
        "critical" if queued else "warning",
        "All worker threads are busy",
        f"{100 * busy:.0f} % of the {situation.threads} worker threads of each process are in a "
        f"request{waited}.{where}",
        situation,
        [
            evidence("share of worker threads busy", busy, "share", thresholds.THREADS_FULL),
            *(
                [evidence("waiting for a thread, 95th percentile", queue["p95"], "s")]
                if queue
                else []
            ),
            *([evidence("application time spent away", away, "share")] if away is not None else []),
        ],
        advice.given(advice.more_processes(situation))
        if computing
        else advice.given(advice.more_threads(situation)),
    )


def io_bound(situation: Situation) -> Verdict | None:
    """Requests mostly wait for a database, another service, a disk or a lock."""
    away, application = situation.away, situation.mean("application")
    if away is None or application is None or away < thresholds.AWAY.value:
        return None
    busy = float(situation.summary["busy"])
    near = busy >= thresholds.AWAY.value
    full = advice.full_gil(situation) if situation.exact and not situation.free_threading else None
    room = (
        f" Its GIL would be full at {advice.rate(full)} for each process; that takes "
        f"{max(1, round(full * application)):,} threads."
        if full
        else ""
    )
    return verdict(
        "io-bound",
        "note" if near else "ok",
        "Requests mostly wait for something outside of Python",
        f"In {100 * away:.0f} % of its {units.seconds(application)} in the application a request "
        f"neither computes nor waits for the GIL. {100 * busy:.0f} % of the threads are busy with "
        f"that.{room} More processes, another switch interval or another policy change little "
        "here.",
        situation,
        [
            evidence("application time spent away", away, "share", thresholds.AWAY),
            evidence("share of worker threads busy", busy, "share", thresholds.THREADS_FULL),
            evidence("GIL in use", situation.gil_use if situation.gil else None, "share"),
            evidence("CPU of each process", situation.summary["cpu_per_process"], "cores"),
        ],
        advice.given(advice.more_threads(situation)) if near else [],
    )
