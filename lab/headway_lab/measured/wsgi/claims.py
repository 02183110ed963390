"""The claims of the published measurements of `wsgi`, with the figures measured here.

The published gain, from 37,000 to 121,000 requests a minute with a switch interval of 0.1 ms
instead of 5 ms, does not add up for a page that does 3 ms of work. 121,000 a minute are 2,017 a
second, which at 3 ms each need six cores; the two processes that served them used 1.8. So a page
did about 0.9 ms of work: it computed *until* 3 ms had passed on the clock. If five threads take
turns every 0.1 ms, the 3 ms of each thread pass while the others compute. With a fixed amount of
work nothing passes, and a small interval only causes more switches. Both kinds of page are
measured, and the statements name the kind. Made from `Results` alone.
"""

from __future__ import annotations

import math

from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway_lab.measured.wsgi.rows import DEADLINE, FIXED, FREE_THREADED, GIL, UNSCHEDULED
from headway_lab.measured.wsgi.tables import one_thread_each, shape_of

USUAL_S, SMALL_S = 0.005, 0.0001
TWO_BY_FIVE = {"processes": 2, "threads": 5}
ONE_BY_TEN = {"processes": 1, "threads": 10}
OTHERS_WORK = (
    "one of the two may have had less of the machine: look at the rows marked !, and at its load"
)


def statements(results: Results) -> list[Statement]:
    found = []
    for server in results.distinct("server"):
        some = results.where(server=server)
        found += [
            *of_small_intervals(some),
            *of_waits(some),
            *of_shapes(some),
            *of_free_threading(some),
            *of_policies(some),
        ]
    # The processor time is unknown if this process read it too late, and there is no ratio to a
    # wait of 0.
    return [each for each in found if not math.isnan(each.value)]


def unscheduled(
    results: Results, interval_s: float = USUAL_S, **parameters: object
) -> Result | None:
    """A row that CPython's own rule schedules."""
    for policy in (UNSCHEDULED, STOCK):
        found = results.measured(mode=GIL, policy=policy, switch_interval=interval_s, **parameters)
        if found is not None:
            return found
    return None


def of_small_intervals(results: Results) -> list[Statement]:
    found = []
    for workload in (DEADLINE, FIXED):
        usual = unscheduled(results, USUAL_S, workload=workload, **TWO_BY_FIVE)
        small = unscheduled(results, SMALL_S, workload=workload, **TWO_BY_FIVE)
        if usual is None or small is None:
            continue
        ratio = ratio_of(small, usual)
        name = f"{server_of(usual)}, {workload}: 2 x 5 with a switch interval of 0.1 ms"
        if workload == DEADLINE:
            text = (
                f"{name} gains, requests of those at 5 ms (published: 3.3; of mod_wsgi on two "
                "cores: 1.27 and 1.33)"
            )
            found.append(Statement(text, ratio, low=1.05, why=OTHERS_WORK))
        else:
            text = (
                f"{name} brings nothing, or costs, requests of those at 5 ms (of mod_wsgi on two "
                "cores: 0.64 and 0.90)"
            )
            found.append(Statement(text, ratio, high=1.05, why=OTHERS_WORK))
    return found


def of_waits(results: Results) -> list[Statement]:
    found = []
    usual = unscheduled(results, USUAL_S, workload=DEADLINE, **TWO_BY_FIVE)
    small = unscheduled(results, SMALL_S, workload=DEADLINE, **TWO_BY_FIVE)
    if usual is not None:
        name = f"{server_of(usual)}, deadline: 2 x 5 at 5 ms"
        why = (
            "a page waits after 3 ms by itself, so the GIL is handed on more often than the "
            "interval alone would have it; a machine's other work lengthens waits"
        )
        # mod_wsgi does not measure single takes; its figures are those of whole requests.
        contended = "contended_gil_wait_p50_s" in usual.figures
        p50 = usual.median("contended_gil_wait_p50_s" if contended else "gil_wait_p50_s")
        p95 = usual.median("gil_wait_p95_s")
        whose = ", of takes that wait" if contended else ""
        text = f"{name}: the median wait for the GIL{whose}, in switch intervals (published: 1)"
        found.append(Statement(text, p50 / USUAL_S, 0.6, 1.6, why))
        text = f"{name}: the 95th percentile of the waits in switch intervals (published: 2.6)"
        found.append(Statement(text, p95 / USUAL_S, 1.5, 4.0, why))
        if usual.figures.get("bumps"):
            text = (
                f"{name}: waits bunch at multiples of the interval, their density there over that "
                "half-way between"
            )
            found.append(Statement(text, usual.median("bumps"), 1.1, why=why))
        if small is not None:
            text = (
                f"{server_of(usual)}, deadline: 2 x 5: the 95th percentile of the waits at 0.1 ms "
                "of that at 5 ms (published: 0.09)"
            )
            ratio = small.median("gil_wait_p95_s") / p95 if p95 else math.nan
            why = "a handoff takes as long as it takes the kernel to wake a thread on a busy core"
            found.append(Statement(text, ratio, high=0.5, why=why))
    return found


def of_shapes(results: Results) -> list[Statement]:
    """Two GILs use at most two cores, ten processes as many as there are."""
    base = one_thread_each(results.where(workload=DEADLINE))
    usual = unscheduled(results, USUAL_S, workload=DEADLINE, **TWO_BY_FIVE)
    if base is None or usual is None:
        return []
    text = (
        f"{server_of(usual)}, deadline: 2 x 5 at 5 ms falls behind {shape_of(base)}, "
        "requests of those (published: 0.28)"
    )
    cpus = results.calibration.get("cpus", 0)
    why = f"published of about ten cores; there are {cpus} here, and two processes can have 2"
    return [Statement(text, ratio_of(usual, base), high=0.95, why=why)]


def of_free_threading(results: Results) -> list[Statement]:
    found = []
    for shape, published in ((TWO_BY_FIVE, 0.98), (ONE_BY_TEN, 1.0)):
        for workload in (DEADLINE, FIXED):
            row = results.measured(workload=workload, mode=FREE_THREADED, **shape)
            base = one_thread_each(results.where(workload=workload))
            if row is None or base is None:
                continue
            ratio, less = ratio_of(row, base), ""
            if workload == FIXED:
                # On this build one thread takes longer for the same work by this ratio.
                ratio *= row.median("work_s") / base.median("work_s")
                less = ", the ratio of the builds' speeds taken out"
            if math.isnan(ratio):
                continue
            text = (
                f"{server_of(row)}, {workload}: {shape_of(row)} free-threaded equals "
                f"{shape_of(base)} with GILs{less}: ratio of the requests "
                f"(published: {published:g})"
            )
            found.append(Statement(text, ratio, 0.85, 1.2, OTHERS_WORK))
    found += of_one_process(results)
    return found


def of_one_process(results: Results) -> list[Statement]:
    found = []
    row = results.measured(workload=DEADLINE, mode=FREE_THREADED, **ONE_BY_TEN)
    base = one_thread_each(results.where(workload=DEADLINE))
    if row is not None:
        text = f"{server_of(row)}: 1 x 10 free-threaded uses several cores (published: 6.65)"
        cpus = results.calibration.get("cpus", 0)
        why = f"there are {cpus} cores here, which clients and others use, too"
        found.append(Statement(text, row.median("cpu_per_process"), low=1.1, why=why))
    if row is not None and base is not None:
        text = (
            f"{server_of(row)}: 1 x 10 free-threaded needs less memory than {shape_of(base)}, "
            "RSS of that (published: 0.16)"
        )
        found.append(Statement(text, row.median("rss_bytes") / base.median("rss_bytes"), high=0.5))
    return found


def of_policies(results: Results) -> list[Statement]:
    """The effect of Headway's policies on pages whose work is fixed."""
    found = []
    base = one_thread_each(results.where(workload=FIXED))
    usual = unscheduled(results, USUAL_S, workload=FIXED, **TWO_BY_FIVE)
    for policy in results.distinct("policy"):
        row = results.measured(
            workload=FIXED, mode=GIL, policy=policy, switch_interval=USUAL_S, **TWO_BY_FIVE
        )
        if row is None or policy in (STOCK, UNSCHEDULED):
            continue
        name = f"{server_of(row)}, fixed: 2 x 5 under {policy}"
        if usual is not None:
            text = f"{name} serves what 2 x 5 under {UNSCHEDULED} does, requests of those"
            found.append(Statement(text, ratio_of(row, usual), low=0.93, why=OTHERS_WORK))
        # If there are no more than two cores, two GILs are not the limit.
        if base is not None and results.calibration.get("cpus", 0) <= 2:
            text = f"{name} serves what {shape_of(base)} does on two cores, requests of those"
            found.append(Statement(text, ratio_of(row, base), low=0.9, why=OTHERS_WORK))
    return found


def ratio_of(result: Result, base: Result) -> float:
    """The median of the ratios, round by round."""
    ratio = result.ratio(base)
    return ratio.median if ratio else math.nan


def server_of(result: Result) -> str:
    return str(result.parameters["server"])
