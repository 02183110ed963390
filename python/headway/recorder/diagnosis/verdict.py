"""A verdict: a name, a text, evidence with its figures, and advice."""

from __future__ import annotations

from typing import TypedDict

from headway.recorder.diagnosis.inputs import DiagnosisInputs
from headway.recorder.records.configuration import Config
from headway.recorder.records.summary import Summary
from headway.report.thresholds import Threshold

# `try` is a keyword. `expect` is what the data let expect of it.
Advice = TypedDict("Advice", {"try": str, "expect": str})


class Evidence(TypedDict):
    text: str
    value: float | str | None
    unit: str
    limit: float | None


class Sample(TypedDict):
    seconds: float
    requests: int


class Verdict(TypedDict):
    """A verdict as the API answers it. `name` is one of NAMES, `severity` one of SEVERITIES."""

    name: str
    severity: str
    title: str
    text: str
    evidence: list[Evidence]
    advice: list[Advice]
    sample: Sample


class Measured(TypedDict):
    """The figures of some processes over a range, their configuration, and the verdict on both."""

    summary: Summary
    config: Config
    verdict: Verdict


NAMES = (
    "saturated",
    "gil-bound",
    "convoy",
    "long-hold",
    "lock-contention",
    "garbage-collection",
    "stopped-world",
    "late-loop",
    "io-bound",
    "idle",
    "cpu-limited",
    "cores-taken",
    "cpu-bound",
    "healthy",
    "unknown",
)
SEVERITIES = ("ok", "note", "warning", "critical")


def verdict(
    name: str,
    severity: str,
    title: str,
    text: str,
    inputs: DiagnosisInputs,
    evidence: list[Evidence],
    advice: list[Advice] | None = None,
) -> Verdict:
    assert name in NAMES
    assert severity in SEVERITIES
    return {
        "name": name,
        "severity": severity,
        "title": title,
        "text": text,
        "evidence": evidence,
        "advice": advice or [],
        "sample": {"seconds": inputs.seconds, "requests": inputs.requests},
    }


def evidence(
    text: str, value: float | None, unit: str, limit: Threshold | float | None = None
) -> Evidence:
    """A figure, with the threshold that it is compared with, if there is one."""
    bound = limit.value if isinstance(limit, Threshold) else limit
    return {"text": text, "value": value, "unit": unit, "limit": bound}
