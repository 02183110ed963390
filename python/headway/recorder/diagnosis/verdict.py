"""A verdict: a name, a text, evidence with its figures, and advice."""

from __future__ import annotations

from typing import Any

from headway.recorder.diagnosis.inputs import Situation
from headway.report.thresholds import Threshold

Verdict = dict[str, Any]
Evidence = dict[str, Any]
Advice = dict[str, str]

NAMES = (
    "saturated",
    "gil-bound",
    "convoy",
    "long-hold",
    "io-bound",
    "idle",
    "cpu-limited",
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
    situation: Situation,
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
        "sample": {"seconds": situation.seconds, "requests": situation.requests},
    }


def evidence(
    text: str, value: float | None, unit: str, limit: Threshold | float | None = None
) -> Evidence:
    """A figure, with the threshold that it is compared with, if there is one."""
    bound = limit.value if isinstance(limit, Threshold) else limit
    return {"text": text, "value": value, "unit": unit, "limit": bound}
