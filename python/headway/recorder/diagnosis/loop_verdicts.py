"""The verdict on event loops: late-loop.

`headway.report.event_loops` decides and has the words; the record has the loops of all its
processes added up.
"""

from __future__ import annotations

from headway.recorder.diagnosis.inputs import DiagnosisInputs
from headway.recorder.diagnosis.verdict import Advice, Evidence, Verdict, evidence, verdict
from headway.recorder.records.stacks import frame_of
from headway.report import event_loops, thresholds, units
from headway.report.event_loops import Lateness


def late_loop(inputs: DiagnosisInputs) -> Verdict | None:
    """An event loop did not look for events for long, or too often."""
    lateness, said = inputs.lateness, sentence(inputs)
    if lateness is None or said is None:
        return None
    has_gil = not inputs.free_threading
    longest_s = max(lateness.longest_s, lateness.present_s)
    return verdict(
        "late-loop",
        "warning",
        "An event loop is late",
        f"{said[0].upper()}{said[1:]}",
        inputs,
        [
            evidence("longest iteration", longest_s, "s", thresholds.LOOP_LATE_S),
            evidence(
                f"share of the loops' time in iterations of {units.seconds(lateness.limit_s)} or "
                "longer",
                lateness.share,
                "share",
                thresholds.LOOP_LATE_SHARE,
            ),
            evidence("late iterations", lateness.late, "iterations"),
            *_parts(lateness, has_gil),
        ],
        [_advice(lateness, has_gil, _policy(inputs))] if lateness.late else [],
    )


def sentence(inputs: DiagnosisInputs) -> str | None:
    """Describes the late iterations of the loops, in words to continue a sentence with; None if
    none was late."""
    lateness = inputs.lateness
    if lateness is None or not lateness.is_late:
        return None
    name, has_gil = "the event loop", not inputs.free_threading
    present = f"for {units.seconds(lateness.present_s)}."
    if not lateness.late:
        return f"{name} has not looked for events {present}"
    said = event_loops.described(lateness, name, has_gil, lambda part: _where(inputs, part))
    # One that ended since is among the others.
    is_longest = lateness.present_s > lateness.longest_s
    return f"{said} It has looked for none {present}" if is_longest else said


def _advice(lateness: Lateness, has_gil: bool, policy: str) -> Advice:
    advised = event_loops.advice(lateness, has_gil, policy).removesuffix(".")
    part, part_s = lateness.by_length()[0]
    return {
        "try": advised[0].lower() + advised[1:],
        "expect": f"the loop looks for events in the {units.seconds(part_s)} in which it "
        f"{event_loops.did(part, has_gil)}.",
    }


def _policy(inputs: DiagnosisInputs) -> str:
    return "priority" if inputs.scheduled else "interval"


def _parts(lateness: Lateness, has_gil: bool) -> list[Evidence]:
    return [
        evidence(f"late iterations: it {event_loops.did(part, has_gil)}", part_s, "s")
        for part, part_s in lateness.by_length()
        if part_s
    ]


def _where(inputs: DiagnosisInputs, part: str) -> str:
    """The line that a part of late iterations was spent in most."""
    rows = [row for row in inputs.record.get("late_lines", ()) if row.get("late_part") == part]
    row = max(rows, key=lambda row: row.get("late_time", 0.0), default=None)
    if row is None:
        return ""
    frame = frame_of(row.get("late_function", ""), row.get("late_place", ""))
    return event_loops.in_code(part, event_loops.place(*frame), row.get("late_holder"))
