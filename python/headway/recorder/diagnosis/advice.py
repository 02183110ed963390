"""Advice by the names of the server's own options, with the effect that the data let expect.

Each function returns an advice, or None where the computed effect is too small. The figures are
upper bounds: resources that the processes share with each other and with the rest of the machine (a
database, the network, the cores' caches) are not in the data, and every text says so.
"""

from __future__ import annotations

import math

from headway.recorder.diagnosis.inputs import DiagnosisInputs
from headway.recorder.diagnosis.verdict import Advice
from headway.recorder.records.summary import PerRequest
from headway.report import thresholds, units

# Longest and shortest switch interval that is advised. At a tenth of a millisecond a switch every
# interval costs a few per cent; below, it soon costs more than it brings.
SHORTEST_INTERVAL_S = 0.0001
# A larger relative error is given in words instead of a percentage.
ROUGH = 0.5
# The most that handoffs may cost, as a share of the GIL's time.
HANDOFFS = 0.1


def is_mod_wsgi(inputs: DiagnosisInputs) -> bool:
    return str(inputs.config["server"] or "").startswith("mod_wsgi")


def rate(requests_per_s: float) -> str:
    """A rate of requests with two to three digits; the data do not support more."""
    if requests_per_s <= 0:
        return "0 requests/s"
    digits = 2 - math.floor(math.log10(requests_per_s))
    rounded = round(requests_per_s, digits)
    text = f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:.2g}"
    return f"{text} requests/s"


def give_or_take(inputs: DiagnosisInputs, *names: PerRequest) -> str:
    """The error of a computed rate, from the spread of the requests that it was computed from."""
    error = inputs.error(*names or ("gil_held", "cpu_per_request", "application"))
    if error is None:
        return ""
    if error > ROUGH:
        return " (a rough guess: these requests differ very much)"
    return f" (give or take {max(1, round(100 * error))} %, from {inputs.requests:,} requests)"


def full_gil(inputs: DiagnosisInputs) -> float | None:
    """The requests/s at which one GIL is full; None if unknown."""
    held = inputs.held_per_request
    if held is None and not inputs.exact:
        # mod_wsgi does not report how long the GIL is held; at most for the CPU time.
        held = inputs.cpu_per_request
    return 1 / held if held else None


def capacity(inputs: DiagnosisInputs, gils: float) -> float | None:
    """The requests/s that `gils` GILs carry on the cores that other processes leave; None if
    unknown."""
    of_gil, cpu = full_gil(inputs), inputs.cpu_per_request
    if of_gil is None or cpu is None:
        return None
    of_cores = inputs.cores_left / cpu if inputs.cores_known else math.inf
    return min(gils * of_gil, of_cores)


def useful_gils(inputs: DiagnosisInputs) -> int | None:
    """The fewest GILs that can use all the cores; at most one for each core, even where the holders
    of a GIL had to wait for a core."""
    of_gil, cpu = full_gil(inputs), inputs.cpu_per_request
    if of_gil is None or cpu is None or not inputs.cores_known:
        return None
    needed = math.ceil(inputs.cores / cpu / of_gil - 0.05)
    return max(1, min(needed, math.ceil(inputs.cores)))


def more_processes(inputs: DiagnosisInputs) -> Advice | None:
    gils = useful_gils(inputs)
    now = max(1, round(inputs.processes))
    per_process = inputs.gil_count
    if gils is None:
        return _one_more_process(inputs, now)
    count = math.ceil(gils / per_process)
    expected, one = capacity(inputs, count * per_process), full_gil(inputs)
    if expected is None or one is None or count <= now:
        return None
    if expected < thresholds.WORTH_TRYING.value * inputs.rps:
        return None
    option = f"processes={count}" if is_mod_wsgi(inputs) else f"--processes {count}"
    memory = (count - now) * inputs.summary["rss_per_process"]
    return {
        "try": f"{_place(inputs)}{option} (now {now})",
        "expect": f"up to {rate(expected)}{give_or_take(inputs)}, now {rate(inputs.rps)}: "
        f"one GIL is full at {rate(one)}, {count} processes on {inputs.cores:g} cores carry "
        f"{expected / one:.3g} times that; {_megabytes(memory)} more memory. What they share "
        "(a database, these cores with other programs) may give less.",
    }


def _one_more_process(inputs: DiagnosisInputs, now: int) -> Advice | None:
    """Advice without the number of cores, which mod_wsgi does not report."""
    one = full_gil(inputs)
    if one is None:
        return None
    option = f"processes={2 * now}" if is_mod_wsgi(inputs) else f"--processes {2 * now}"
    return {
        "try": f"{_place(inputs)}{option} (now {now})",
        "expect": f"up to {rate(2 * now * one)} if there are {2 * now} cores for it, now "
        f"{rate(inputs.rps)}; how many cores there are is not in the data.",
    }


def own_gils(inputs: DiagnosisInputs) -> Advice | None:
    """Advises interpreters with their own GILs: threads that share memory, but not the GIL."""
    gils = useful_gils(inputs)
    now = max(1, round(inputs.processes))
    if gils is None or is_mod_wsgi(inputs) or not inputs.serves:
        return None
    if _python(inputs) < (3, 12):
        return None
    count = min(math.ceil(gils / now), inputs.threads)
    expected = capacity(inputs, now * count)
    if count <= inputs.gil_count or expected is None:
        return None
    if expected < thresholds.WORTH_TRYING.value * inputs.rps:
        return None
    return {
        "try": f"--interpreters {count} --per-interpreter-gil, once `headway audit APP` says that "
        "the extension modules allow it",
        "expect": f"up to {rate(expected)}{give_or_take(inputs)}, now {rate(inputs.rps)}, as "
        "with more processes; each interpreter loads the application anew.",
    }


def free_threading(inputs: DiagnosisInputs) -> Advice | None:
    if _python(inputs) < (3, 13) or not inputs.serves:
        return None
    cpu = inputs.cpu_per_request
    if cpu is None or not inputs.cores_known:
        return None
    threads = inputs.threads * max(1.0, inputs.processes)
    expected = min(inputs.cores, threads) / cpu
    if expected < thresholds.WORTH_TRYING.value * inputs.rps:
        return None
    option = "WSGIFreeThreading On" if is_mod_wsgi(inputs) else "--free-threading"
    return {
        "try": f"{option} on a free-threaded build, once `headway audit APP` says that the "
        "extension modules allow it",
        "expect": f"up to {rate(expected)}, now {rate(inputs.rps)}, less what that build runs "
        "Python slower and what threads that write to the same objects wait for each other.",
    }


def policy(inputs: DiagnosisInputs) -> Advice | None:
    """Advises `priority`, which bounds the waits of short requests and makes no work shorter."""
    if inputs.free_threading or (inputs.exact and inputs.scheduled):
        return None
    if not inputs.serves:
        return _policy_of_a_program(inputs)
    waited = inputs.summary["gil_wait"]
    now = f", now {units.seconds(waited['p99'])} (99th percentile)" if waited else ""
    threads = max(2, inputs.threads)
    if is_mod_wsgi(inputs):
        first = "`headway serve --config httpd.conf`, which has --policy priority by default"
    else:
        first = "--policy priority"
    return {
        "try": first,
        "expect": f"a request that needs less than a millisecond of the GIL waits for it at most "
        f"{threads} ms each time, one for each of the {threads} threads, and mostly far less"
        f"{now}{_prevented(inputs)}; calls that cannot be preempted come on top. Requests/s of "
        "CPU-bound pages stay as they are.",
    }


def _policy_of_a_program(inputs: DiagnosisInputs) -> Advice:
    """A program of any kind takes its policy from the environment."""
    waited = inputs.summary["take_wait"]
    now = f", now {units.seconds(waited['p99'])} (99th percentile)" if waited else ""
    return {
        "try": "HEADWAY=priority in the program's environment",
        "expect": "a thread that needs less than a millisecond of the GIL waits for it at most a "
        f"millisecond for each other thread, and mostly far less{now}{_prevented(inputs)}; calls "
        "that cannot be preempted come on top. CPU-bound threads get as much done as now.",
    }


def _prevented(inputs: DiagnosisInputs) -> str:
    """The waiting that the policy would have spared, as the meter divides each wait."""
    prevented, waits = inputs.waited_behind("preventable"), inputs.waits
    if prevented is None or waits is None:
        return ""
    return f"; {units.seconds(prevented)} of {units.seconds(waits['sum'])} waited would be spared"


def switch_interval(inputs: DiagnosisInputs) -> Advice | None:
    """Advises a shorter interval, which cuts waits in proportion and costs handoffs."""
    interval, waits = inputs.interval, inputs.waits
    if not interval or inputs.free_threading or (inputs.exact and inputs.scheduled):
        return None
    cost = _handoff(inputs)
    # The shortest interval at which one handoff per interval costs no more than HANDOFFS.
    least = SHORTEST_INTERVAL_S if cost is None else max(SHORTEST_INTERVAL_S, cost / HANDOFFS)
    shorter = float(f"{max(least, interval / 50):.1g}")
    if shorter > interval / 2:
        return None
    known = waits or inputs.summary["gil_wait"]
    p95 = known["p95"] if known else None
    waited = (
        f"waits that lasted {units.seconds(p95)} (95th percentile) come down towards "
        f"{units.seconds(p95 * shorter / interval)}"
        if p95
        else "waits come down in proportion"
    )
    handoffs = (
        f"a handoff takes {units.seconds(cost)} here, so one every {units.seconds(shorter)} costs "
        f"at most {100 * cost / (shorter + cost):.0f} % of the GIL's time"
        if cost is not None
        else f"it costs up to {interval / shorter:.0f} times as many handoffs, whose length is not "
        "in the data"
    )
    option = f"--switch-interval {1000 * shorter:g}ms"
    if is_mod_wsgi(inputs):
        option = f"switch-interval={shorter:g}"
    elif not inputs.serves:
        option = (
            f"sys.setswitchinterval({shorter:g}), or HEADWAY=switch-interval={1000 * shorter:g}ms"
        )
    return {
        "try": f"{_place(inputs)}{option} (now {units.seconds(interval)})",
        "expect": f"{waited}; {handoffs}. Work that takes a fixed amount of computing does not get "
        "done faster.",
    }


def _handoff(inputs: DiagnosisInputs) -> float | None:
    """The mean time from a drop of the GIL to the next take while a thread waits, in seconds."""
    rows = inputs.record.get("gils", ())
    takes = sum(row.get("gil_contended_takes", 0) for row in rows)
    return sum(row.get("gil_handoff", 0.0) for row in rows) / takes if takes else None


def more_threads(inputs: DiagnosisInputs) -> Advice | None:
    """Advises more threads where these wait for something other than the GIL or a core."""
    application, queue = inputs.mean("application"), inputs.mean("queue") or 0.0
    if not application or not inputs.threads:
        return None
    threads = math.ceil(inputs.threads * max(1.5, 1 + queue / application))
    expected = threads * max(1.0, inputs.processes) / application
    gils = max(1.0, inputs.processes) * inputs.gil_count
    limit = capacity(inputs, gils) if inputs.exact and not inputs.free_threading else None
    bounded = limit is not None and limit < expected
    if bounded and limit is not None:
        expected = limit
    if expected < thresholds.WORTH_TRYING.value * inputs.rps:
        return None
    option = f"threads={threads}" if is_mod_wsgi(inputs) else f"--threads {threads}"
    why = "there the GIL or the cores are full" if bounded else "if what they wait for keeps up"
    return {
        "try": f"{_place(inputs)}{option} (now {inputs.threads})",
        "expect": f"up to {rate(expected)}{give_or_take(inputs, 'application')}, now "
        f"{rate(inputs.rps)}: each occupies a thread for {units.seconds(application)}; {why}.",
    }


def less_sharing(inputs: DiagnosisInputs, waiting: float) -> Advice | None:
    """Advises to share less, where `waiting` threads of each process wait for locks."""
    cpu = inputs.summary["cpu_per_process"]
    cores = inputs.cores / max(1.0, inputs.processes)
    could = min(cpu + waiting, cores) if inputs.cores_known else cpu + waiting
    if could < thresholds.WORTH_TRYING.value * cpu:
        return None
    return {
        "try": "less work with the lock held: compute first and lock for the change alone, or give "
        "each thread objects of its own and join them at the end",
        "expect": f"up to {could:.2g} cores of each process compute, now {cpu:.2g}. Where one "
        "lock guards all the work, no number of threads brings more than one core.",
    }


def processes_without_shared_locks(inputs: DiagnosisInputs, waiting: float) -> Advice | None:
    """Advises processes in place of threads that wait for locks: they share none."""
    if not inputs.serves or not inputs.cores_known or is_mod_wsgi(inputs):
        return None
    now, cpu = max(1, round(inputs.processes)), inputs.cpu
    count = min(math.ceil(inputs.cores), now * (1 + math.ceil(waiting)))
    expected = inputs.rps * min(inputs.cores, cpu * count / now) / cpu if cpu else 0.0
    if count <= now or expected < thresholds.WORTH_TRYING.value * inputs.rps:
        return None
    return {
        "try": f"--processes {count} (now {now})",
        "expect": f"up to {rate(expected)}, now {rate(inputs.rps)}: processes share no locks of "
        "Python. What they share (a database, these cores with other programs) may give less.",
    }


def given(*all_advice: Advice | None) -> list[Advice]:
    return [each for each in all_advice if each is not None]


def _place(inputs: DiagnosisInputs) -> str:
    return "WSGIDaemonProcess " if is_mod_wsgi(inputs) else ""


def _python(inputs: DiagnosisInputs) -> tuple[int, int]:
    """The oldest Python version of the processes; (0, 0) if none reports it."""
    value = inputs.config["python"]
    found = []
    for each in value if isinstance(value, list) else [value]:
        parts = str(each).split(".")
        if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit():
            found.append((int(parts[0]), int(parts[1])))
    return min(found, default=(0, 0))


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
