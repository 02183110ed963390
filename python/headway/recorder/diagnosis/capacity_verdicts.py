"""Verdicts on cores and threads: cpu-limited, cores-taken, cpu-bound, saturated, io-bound."""

from __future__ import annotations

from headway.recorder.diagnosis import advice
from headway.recorder.diagnosis.gil_verdicts import is_queued
from headway.recorder.diagnosis.inputs import DiagnosisInputs, most, waited_for
from headway.recorder.diagnosis.verdict import Advice, Verdict, evidence, verdict
from headway.report import diagnosis, thresholds, units


def cpu_limited(inputs: DiagnosisInputs) -> Verdict | None:
    """The cgroup's CPU limit throttles the processes."""
    throttled = float(inputs.summary["throttled"])
    limit = most(inputs.config["cpu_limit"], 0.0)
    use = inputs.cpu / limit if limit else 0.0
    if throttled < thresholds.THROTTLED.value and use < thresholds.AT_LIMIT.value:
        return None
    badly = throttled >= thresholds.THROTTLED_BADLY.value
    if limit:
        of_limit = f" of the {limit:g} that the cgroup allows"
        more: Advice = {
            "try": f"a higher CPU limit (cpu.max), {2 * limit:g} cores instead of {limit:g}",
            "expect": f"up to twice the {advice.rate(inputs.rps)} of now, as far as work is "
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
        f"{inputs.cpu:.2f} cores{of_limit} are in use, and in {100 * throttled:.0f} % of its "
        "periods the cgroup was throttled: all its threads stop then, also the one that holds the "
        "GIL, for up to a tenth of a second. The limit is the first cause of waits "
        "and response times meanwhile.",
        inputs,
        [
            evidence("share of periods throttled", throttled, "share", thresholds.THROTTLED),
            evidence("share of the limit in use", use, "share", thresholds.AT_LIMIT),
            evidence("CPU", inputs.cpu, "cores", limit or None),
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


def cores_taken(inputs: DiagnosisInputs) -> Verdict | None:
    """Other processes take the cores from threads that hold a GIL or are to have it."""
    others = inputs.cores_of_others
    contention = inputs.contention
    if others is None or contention is None or not inputs.cores_known:
        return None
    if contention.kept_s >= thresholds.LONG_HOLD_ALONE_S.value:
        # The kernel keeps no thread off its core for so long.
        return None
    rows = inputs.record.get("gils", ())
    used_s = sum(row.get("gil_held", 0.0) + row.get("gil_handoff", 0.0) for row in rows)
    used_s -= sum(
        waited_for(hold)
        for hold in inputs.counted_holds
        if diagnosis.is_asleep(waited_for(hold), hold.get("hold_cpu"))
    )
    cpu_s = inputs.cpu * inputs.seconds
    if not diagnosis.lacks_cores(
        wall_s=inputs.process_seconds,
        used_s=used_s,
        cpu_s=cpu_s,
        others_s=others * inputs.seconds,
        busy_s=(others + inputs.cpu) * inputs.seconds,
        cores=inputs.cores,
    ):
        return None
    queued = is_queued(inputs)
    return verdict(
        "cores-taken",
        "critical" if queued else "warning",
        "Other processes take the cores",
        f"They use {others:.1f} of {units.number(round(inputs.cores), 'core')}, and threads that "
        f"had the GIL or were next for {units.seconds(used_s)} ran for "
        f"{units.seconds(cpu_s)}. This makes waits for the GIL longer."
        + (" Requests queue for a thread." if queued else ""),
        inputs,
        [
            evidence("cores that other processes use", others, "cores"),
            evidence("CPU", inputs.cpu, "cores"),
            evidence(
                "CPU time, as a share of the time that the GIL was needed",
                cpu_s / used_s,
                "share",
                thresholds.ON_A_CORE,
            ),
        ],
        [
            {
                "try": "cores of its own (a cpuset, CPUAffinity= of systemd, a larger CPU request "
                "or weight), or run the other processes elsewhere",
                "expect": "the GIL is held as long as its holders compute, now "
                f"{used_s / cpu_s:.1f} times that.",
            }
        ]
        if cpu_s
        else [],
    )


def cpu_bound(inputs: DiagnosisInputs) -> Verdict | None:
    """All cores are in use, or all threads where several may compute at the same time."""
    if not inputs.cores_known:
        return None
    cores, cpu = inputs.cores, inputs.cpu
    processes = max(1.0, inputs.processes)
    parallel = inputs.free_threading or inputs.gil_count > 1
    # The processes can use all the cores, or as many as they have threads.
    threads = processes * max(1, inputs.threads)
    if parallel and inputs.serves and threads < cores:
        ceiling, what = threads, "threads"
    else:
        ceiling, what = cores, "cores"
    if cpu < thresholds.CORES_FULL.value * ceiling:
        return None
    queued = is_queued(inputs)
    if what == "threads":
        suggestion = advice.more_threads(inputs)
    else:
        cost = inputs.cpu_per_request
        suggestion = {
            "try": "more cores, or less computing per request",
            "expect": f"each core carries {advice.rate(1 / cost)}"
            f"{advice.give_or_take(inputs)}; more processes or threads on these cores only "
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
            if inputs.free_threading
            else ""
        )
        + ("Requests queue for a thread." if queued else "Nobody queues for a thread yet."),
        inputs,
        [
            evidence(f"CPU, of {ceiling:g} {what}", cpu, "cores", 0.9 * ceiling),
            evidence("waiting for the GIL, threads on average", inputs.waiting, "threads"),
        ],
        advice.given(suggestion, None if inputs.free_threading else advice.policy(inputs)),
    )


def saturated(inputs: DiagnosisInputs) -> Verdict | None:
    """All worker threads are busy."""
    busy = float(inputs.summary["busy"])
    queued = is_queued(inputs)
    if busy < thresholds.THREADS_FULL.value or not (
        queued or busy >= thresholds.THREADS_ALL_BUSY.value
    ):
        return None
    queue = inputs.summary["queue"]
    waited = (
        f", and one request in twenty waits {units.seconds(queue['p95'])} for one"
        if (queue and queued)
        else ""
    )
    away = inputs.away
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
        f"{100 * busy:.0f} % of the {inputs.threads} worker threads of each process are in a "
        f"request{waited}.{where}",
        inputs,
        [
            evidence("share of worker threads busy", busy, "share", thresholds.THREADS_FULL),
            *(
                [evidence("waiting for a thread, 95th percentile", queue["p95"], "s")]
                if queue
                else []
            ),
            *([evidence("application time spent away", away, "share")] if away is not None else []),
        ],
        advice.given(advice.more_processes(inputs))
        if computing
        else advice.given(advice.more_threads(inputs)),
    )


def io_bound(inputs: DiagnosisInputs) -> Verdict | None:
    """Requests mostly wait for a database, another service, a disk or a lock."""
    away, application = inputs.away, inputs.mean("application")
    if away is None or application is None or away < thresholds.AWAY.value:
        return None
    busy = float(inputs.summary["busy"])
    near = busy >= thresholds.AWAY.value
    full = advice.full_gil(inputs) if inputs.exact and not inputs.free_threading else None
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
        inputs,
        [
            evidence("application time spent away", away, "share", thresholds.AWAY),
            evidence("share of worker threads busy", busy, "share", thresholds.THREADS_FULL),
            evidence("GIL in use", inputs.gil_use if inputs.gil else None, "share"),
            evidence("CPU of each process", inputs.summary["cpu_per_process"], "cores"),
        ],
        advice.given(advice.more_threads(inputs)) if near else [],
    )
