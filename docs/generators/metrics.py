"""The page of the metrics of the recorder: names, units, kinds and labels."""

from __future__ import annotations

from generators.markdown import code, table
from headway.recorder.export.otlp import UNITS
from headway.recorder.metrics.definitions import (
    GROUP_LABELS,
    METRICS,
    RECORDER_COUNTERS,
    RECORDER_GAUGES,
    Metric,
)

INTRODUCTION = """\
# Metrics

This page is generated from the definitions that `/metrics` and OTLP use.
[Telemetry](../telemetry.md#prometheus-and-opentelemetry) explains how to export them, and what
counters, histograms and gauges cover.
"""
HEAD = ("/metrics", "OTLP, unit", "kind", "labels", "meaning")
OF_RECORDER = {each.metric.name for each in (*RECORDER_COUNTERS, *RECORDER_GAUGES)}


def page() -> str:
    return f"{INTRODUCTION}\n{table(HEAD, map(_row, METRICS))}"


def _row(metric: Metric) -> list[str]:
    labels = (*(() if metric.name in OF_RECORDER else GROUP_LABELS), *metric.labels)
    otlp = f"{code(metric.otlp_name)} {UNITS.get(metric.unit, '')}".strip()
    return [code(metric.sample_name), otlp, metric.kind, ", ".join(labels), metric.help]
