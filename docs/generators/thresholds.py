"""The page of the thresholds at which the rules of the verdicts and sentences decide."""

from __future__ import annotations

from generators.markdown import table
from headway.report.thresholds import TABLE

INTRODUCTION = """\
# Thresholds

This page is generated from `headway.report.thresholds`. The [verdicts](../telemetry.md#verdicts) of
a recorder, the last sentence of a report and the caption of a trace change at these figures.
"""
HEAD = ("figure", "what it decides", "why")


def page() -> str:
    rows = ([f"{each.value:g} {each.unit}", each.meaning, each.reason] for each in TABLE.values())
    return f"{INTRODUCTION}\n{table(HEAD, rows)}"
