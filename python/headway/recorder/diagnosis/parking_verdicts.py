"""Verdicts on free-threaded processes, whose threads wait for one another without a GIL:
lock-contention and stopped-world.

`headway.report.diagnosis` decides; these functions put its findings into words, with evidence and
advice. With a GIL neither of them applies.
"""

from __future__ import annotations

from headway.recorder.diagnosis import advice
from headway.recorder.diagnosis.gil_verdicts import is_queued
from headway.recorder.diagnosis.inputs import DiagnosisInputs
from headway.recorder.diagnosis.verdict import Evidence, Verdict, evidence, verdict
from headway.report import columns, diagnosis, thresholds, units


def lock_contention(inputs: DiagnosisInputs) -> Verdict | None:
    """Threads lose much of their time to locks that another thread has."""
    parking = inputs.parking
    if parking is None or diagnosis.parking_finding(parking) != diagnosis.LOCK_CONTENTION:
        return None
    waits = inputs.summary["parked"]
    share, limit = parking.contended_share, units.seconds(thresholds.LOCK_WAIT_S.value)
    cpu = inputs.summary["cpu_per_process"]
    queued = is_queued(inputs)
    return verdict(
        "lock-contention",
        "critical" if queued else "warning",
        "Threads wait for each other's locks",
        f"{parking.contending:.1f} threads of each process wait for a lock on average, while "
        f"{cpu:.2f} cores compute: {100 * share:.0f} % of the time of these threads goes to waits "
        f"of less than {limit}. They share a lock: one of their own, or that of a list, a dict or "
        "another object that all of them change. Events that come as fast, such as the items of a "
        "queue, count too." + (" Requests also queue for a thread." if queued else ""),
        inputs,
        [
            evidence(
                f"threads that wait for locks, for less than {limit} at a time, on average",
                parking.contending,
                "threads",
                thresholds.THREADS_PARKED,
            ),
            evidence(
                "share of such waits in the time of threads that compute or wait",
                share,
                "share",
                thresholds.PARKED_SHARE,
            ),
            evidence("CPU of each process", cpu, "cores", thresholds.LOCK_CPU),
            *(
                [evidence("wait for a lock or an event, median", waits["p50"], "s")]
                if waits
                else []
            ),
            *_most(inputs, "thread_parked", "waits for locks and events"),
        ],
        advice.given(
            advice.less_sharing(inputs, parking.contending),
            advice.processes_without_shared_locks(inputs, parking.contending),
        ),
    )


def stopped_world(inputs: DiagnosisInputs) -> Verdict | None:
    """Threads lose much of their time because one of them stops all others."""
    parking = inputs.parking
    if parking is None or diagnosis.parking_finding(parking) != diagnosis.STOPPED_WORLD:
        return None
    collections = inputs.summary["gc"]
    queued = is_queued(inputs)
    return verdict(
        "stopped-world",
        "critical" if queued else "warning",
        "Threads stand still while another stops the world",
        f"{parking.stopped:.1f} threads of each process stand still on average, or wait until "
        f"others do: {100 * parking.stopped_share:.0f} % of the time of threads that compute or "
        "wait so. Without a GIL, CPython stops all threads for a garbage collection, and for some "
        "changes that all of them have to see.",
        inputs,
        [
            evidence(
                "threads that stand still or wait for others to do so, on average",
                parking.stopped,
                "threads",
                thresholds.THREADS_PARKED,
            ),
            evidence(
                "share of these waits in the time of threads that compute or wait",
                parking.stopped_share,
                "share",
                thresholds.PARKED_SHARE,
            ),
            *(
                [
                    evidence("garbage collections", collections["pauses"], "1/s"),
                    evidence("share of time in them", collections["share"], "share"),
                ]
                if collections
                else []
            ),
            *_most(inputs, "thread_suspended", "stood still"),
        ],
        [
            {
                "try": "fewer garbage collections: gc.freeze() after the start, a larger "
                "gc.set_threshold(), no gc.collect() of its own",
                "expect": "each collection that does not run stops no thread; "
                f"{parking.stopped:.1f} threads of each process more compute at best.",
            }
        ],
    )


def _most(inputs: DiagnosisInputs, name: str, what: str) -> list[Evidence]:
    """The thread with most of one kind of wait."""
    rows = inputs.record.get("threads", ())
    worst = max(rows, key=lambda row: row.get(name, 0.0), default=None)
    if worst is None or not worst.get(name):
        return []
    thread = columns.name(worst.get("thread_name") or "(unnamed)", 80)
    return [evidence(f"{what}, by the thread {thread}", worst[name], "s")]
