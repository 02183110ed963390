"""The rules, in an order in which each explains what the later ones would find.

A cgroup that throttles the threads explains all waits that follow from it. Of the rules on the GIL
that one comes first which explains most of the waiting; their order here is for the verdicts of
several processes. Where all cores are in use, more GILs bring nothing, so the cores come before the
full GIL. For the same reason they come before locks, which threads without a GIL wait for. What is
said of threads explains what an event loop waits for, so a late loop comes behind it, and is named
in the text of any other rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from headway.recorder.diagnosis import advice
from headway.recorder.diagnosis.capacity_verdicts import (
    cores_taken,
    cpu_bound,
    cpu_limited,
    io_bound,
    saturated,
)
from headway.recorder.diagnosis.gil_verdicts import (
    collection,
    convoy,
    gil_bound,
    long_hold,
)
from headway.recorder.diagnosis.inputs import DiagnosisInputs, Hold
from headway.recorder.diagnosis.loop_verdicts import late_loop, sentence
from headway.recorder.diagnosis.parking_verdicts import lock_contention, stopped_world
from headway.recorder.diagnosis.verdict import SEVERITIES, Evidence, Verdict, evidence, verdict
from headway.recorder.records.configuration import Config
from headway.recorder.records.summary import Record, Summary
from headway.report import thresholds, units
from headway.report.thresholds import Threshold

RULES = {
    "cpu-limited": cpu_limited,
    "cores-taken": cores_taken,
    "long-hold": long_hold,
    "garbage-collection": collection,
    "convoy": convoy,
    "cpu-bound": cpu_bound,
    "gil-bound": gil_bound,
    "stopped-world": stopped_world,
    "lock-contention": lock_contention,
    "saturated": saturated,
    "late-loop": late_loop,
    "io-bound": io_bound,
}
_ORDER = tuple(RULES)
# Others that use fewer cores are not named.
OTHERS_CORES = 0.1
# These rules do not count requests, so they need no minimum of them.
WITHOUT_REQUESTS = (
    "cpu-limited",
    "cores-taken",
    "long-hold",
    "garbage-collection",
    "saturated",
    "late-loop",
)


def judge(
    record: Record, summary: Summary, config: Config, long_holds: Iterable[Hold] = ()
) -> Verdict:
    """The verdict on one process or process group."""
    inputs = DiagnosisInputs(record, summary, config, tuple(long_holds))
    enough = is_enough(inputs)
    for name in _in_order(inputs):
        if enough or name in WITHOUT_REQUESTS:
            found = RULES[name](inputs)
            if found is not None:
                return found if name == "late-loop" else _with_late_loop(found, inputs)
    if _is_idle(inputs):
        return _idle(inputs)
    return _healthy(inputs) if enough else _unknown(inputs)


def _with_late_loop(found: Verdict, inputs: DiagnosisInputs) -> Verdict:
    """A verdict that says, too, that an event loop was late, if one was."""
    late = sentence(inputs)
    return found if late is None else {**found, "text": f"{found['text']} Late event loop: {late}"}


def _in_order(inputs: DiagnosisInputs) -> list[str]:
    """The names of the rules, those on the GIL by how much of the waiting they explain."""
    found = inputs.findings
    first_full = found.index("gil-bound") if "gil-bound" in found else len(found)
    by_share = [*found[:first_full], "cpu-bound", *found[first_full:]]
    # A limit or a lack of cores stops the holders of the GIL, and so explains all waits for them.
    return [*_ORDER[:2], *by_share, *(name for name in _ORDER[2:] if name not in by_share)]


def is_worse(verdict: Verdict, other: Verdict) -> bool:
    """Whether a verdict is more severe than another one, of its group, and not what the other one
    explains. Those that take the cores from a process may be others of its group."""
    explained = verdict["name"] == "cores-taken" or (
        other["name"] in RULES
        and verdict["name"] in RULES
        and _ORDER.index(other["name"]) < _ORDER.index(verdict["name"])
    )
    severity, others = (SEVERITIES.index(each["severity"]) for each in (verdict, other))
    return severity > others and not explained


def worst(verdicts: Iterable[tuple[str, Verdict]]) -> Verdict | None:
    """The most severe of several groups' verdicts, with the name of its group; among equals, that
    of the group with the most requests. None without a group."""
    ranked = sorted(
        verdicts,
        key=lambda each: (
            SEVERITIES.index(each[1]["severity"]),
            each[1]["name"] not in ("idle", "unknown"),
            each[1]["sample"]["requests"],
        ),
    )
    if not ranked:
        return None
    group, found = ranked[-1]
    if len(ranked) == 1:
        return found
    return {**found, "text": f"Process group {group}: {found['text']}"}


def is_enough(inputs: DiagnosisInputs) -> bool:
    """Whether there are enough requests, or takes of the GIL in a program without requests. Where
    there is no GIL, each moment of a thread is either CPU time or a wait, so any time is enough."""
    if inputs.serves:
        return inputs.requests >= thresholds.ENOUGH_REQUESTS.value
    if inputs.parking is not None:
        return inputs.seconds > 0
    holds = inputs.holds
    return bool(holds and holds["count"] >= thresholds.ENOUGH_TAKES.value)


def _is_idle(inputs: DiagnosisInputs) -> bool:
    limit = thresholds.IDLE_BUSY.value
    return (
        inputs.seconds > 0
        and inputs.summary["busy"] < limit
        and inputs.summary["cpu_per_process"] < limit
        and inputs.gil_use < limit
    )


def _idle(inputs: DiagnosisInputs) -> Verdict:
    return verdict(
        "idle",
        "ok",
        "Hardly anything to do",
        f"{units.number(inputs.requests, 'request')} in {units.seconds(inputs.seconds)}; "
        "threads, cores and GIL are in use for less than "
        f"{100 * thresholds.IDLE_BUSY.value:.0f} % of the time.",
        inputs,
        [
            *_busy(inputs, thresholds.IDLE_BUSY),
            evidence(
                "CPU of each process",
                inputs.summary["cpu_per_process"],
                "cores",
                thresholds.IDLE_BUSY,
            ),
        ],
    )


def _busy(inputs: DiagnosisInputs, limit: Threshold) -> list[Evidence]:
    """Only what serves requests has worker threads."""
    if not inputs.serves:
        return []
    return [evidence("share of worker threads busy", inputs.summary["busy"], "share", limit)]


def _free(inputs: DiagnosisInputs) -> str:
    if inputs.gil_use < thresholds.GIL_FULL.value:
        return "Neither threads, cores nor the GIL are used up."
    return (
        f"The GIL is in use {100 * inputs.gil_use:.0f} % of the time, but hardly a thread waits "
        "for it: one thread computes."
    )


def _unknown(inputs: DiagnosisInputs) -> Verdict:
    if inputs.serves:
        needed, found, what = (
            int(thresholds.ENOUGH_REQUESTS.value),
            inputs.requests,
            "request",
        )
    else:
        holds = inputs.holds
        needed, found, what = (
            int(thresholds.ENOUGH_TAKES.value),
            holds["count"] if holds else 0,
            "take",
        )
    text = f"A verdict needs {units.number(needed, what)}, and there were {found:,}"
    if found and inputs.seconds > 0:
        seconds = math.ceil(inputs.seconds * needed / found)
        text += f": at this rate, those of {units.seconds(seconds)}"
    return verdict(
        "unknown",
        "ok",
        "Too little was seen for a verdict",
        f"{text}.",
        inputs,
        [evidence(f"{what}s seen", found, f"{what}s", needed)],
    )


def _others(inputs: DiagnosisInputs) -> str:
    others = inputs.cores_of_others
    if others is None or others < OTHERS_CORES:
        return ""
    return (
        f" Other processes use {others:.1f} cores; if they need more for more requests, as a "
        "database does, it is less."
    )


def _healthy(inputs: DiagnosisInputs) -> Verdict:
    """Nothing limits the processes. The text has the rate at which something would."""
    full = (
        advice.capacity(inputs, max(1.0, inputs.processes) * inputs.gil_count)
        if inputs.exact and not inputs.free_threading
        else None
    )
    room = (
        f" At {advice.rate(full)}{advice.give_or_take(inputs)} the GIL or the cores would be "
        f"full; now it is {advice.rate(inputs.rps)}.{_others(inputs)}"
        if full and inputs.rps
        else ""
    )
    return verdict(
        "healthy",
        "ok",
        "Nothing is in the way",
        f"{_free(inputs)}{room}",
        inputs,
        [
            *_busy(inputs, thresholds.THREADS_FULL),
            evidence(
                "GIL in use",
                inputs.gil_use if inputs.gil else None,
                "share",
                thresholds.GIL_FULL,
            ),
            evidence("CPU of each process", inputs.summary["cpu_per_process"], "cores"),
        ],
    )
