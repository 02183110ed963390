"""The common part of experiments whose threads divide a fixed amount of work: how much the time
falls as threads are added."""

from __future__ import annotations

import os

from headway.output.claim import Statement
from headway.output.results import Parameters, Results
from headway_lab.arrangement import label_of

NO_CORES = (
    "cores that others use meanwhile (steal, load), or hyper-threads of one core, bring less than "
    "a core each"
)


def cores() -> Parameters:
    """The processors, for a calibration; `scaling` depends on them."""
    return {"cpus": len(os.sched_getaffinity(0))}


def threads_text(threads: object) -> str:
    return label_of("threads", threads)


def several(results: Results) -> list[int]:
    return [threads for threads in results.distinct("threads") if threads > 1]


def scaling(name: str, results: Results) -> list[Statement]:
    """States that times fall as threads are added up to the number of cores, and not beyond.
    `results` have one row for each number of threads."""
    cpus = results.calibration.get("cpus", 1)
    within = [threads for threads in several(results) if threads <= cpus]
    beyond = [threads for threads in results.distinct("threads") if threads >= cpus]
    found = []
    if within:
        most = max(within)
        speedup = results.ratio({"threads": 1}, {"threads": most})
        text = (
            f"{name}: {most} threads on {cpus} cores are {most} times as fast as one: share of it"
        )
        found.append(Statement(text, speedup / most, low=0.75, why=NO_CORES))
    if len(beyond) > 1:
        fewest, most = min(beyond), max(beyond)
        ratio = results.ratio({"threads": most}, {"threads": fewest})
        text = (
            f"{name}: {most} threads on {cpus} cores take as long as {threads_text(fewest)}: "
            "ratio of the times"
        )
        found.append(Statement(text, ratio, 0.8, 1.25))
    return found
