"""Collects the current values of all metrics, for `exposition` and `otlp`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headway.recorder.metrics.definitions import (
    COUNTERS,
    GAUGES,
    GROUP_LABELS,
    HISTOGRAMS,
    RECORDER_COUNTERS,
    RECORDER_GAUGES,
    Metric,
    Moment,
    Reading,
)
from headway.recorder.metrics.totals import Buckets, Group, Sums, Totals
from headway.recorder.query.history import History
from headway.recorder.query.measuring import measure_groups
from headway.recorder.query.query import Range
from headway.recorder.store.selection import EVERYTHING

# The window of gauges. It is longer if processes report less often.
WINDOW_S = 10.0
MAX_WINDOW_S = 120.0


class Sample(NamedTuple):
    """A sample. `started` is when a counter or histogram began to count; 0 for a gauge."""

    labels: dict[str, str]
    value: float | Buckets
    started: float = 0.0


class Family(NamedTuple):
    metric: Metric
    samples: list[Sample]


def collect(history: History) -> list[Family]:
    """The families in the order of `definitions.METRICS`, each with its groups in order."""
    totals = history.totals
    sums = totals.of_groups() if totals is not None else {}
    moments = _moments(history, sums)
    families = [Family(each.metric, _counted(each.metric, sums)) for each in COUNTERS]
    families += [Family(each.metric, _spread(each.metric, sums)) for each in HISTOGRAMS]
    families += [Family(each.metric, _levels(each, moments)) for each in GAUGES]
    return families + _of_recorder(history, totals)


def _counted(metric: Metric, sums: dict[Group, Sums]) -> list[Sample]:
    return [
        Sample(_labels(metric, group, labels), value, each.started)
        for group, each in sums.items()
        for (name, labels), value in each.counters.items()
        if name == metric.name
    ]


def _spread(metric: Metric, sums: dict[Group, Sums]) -> list[Sample]:
    return [
        Sample(_labels(metric, group), each.histograms[metric.name], each.started)
        for group, each in sums.items()
        if metric.name in each.histograms
    ]


def _levels(reading: Reading, moments: dict[Group, Moment]) -> list[Sample]:
    return [
        Sample(_labels(reading.metric, group, labels), value)
        for group, moment in moments.items()
        for labels, value in reading.read(moment)
    ]


def _of_recorder(history: History, totals: Totals | None) -> list[Family]:
    health = history.health()
    started = totals.started if totals is not None else 0.0
    health["started"] = started or None
    families = []
    for counter in RECORDER_COUNTERS:
        metric = counter.metric
        values = [value for _, value in counter.read(health)]
        if totals is not None:
            values = [totals.highest(metric.name, value) for value in values]
        families.append(Family(metric, [Sample({}, value, started) for value in values]))
    for gauge in RECORDER_GAUGES:
        samples = [Sample({}, value) for _, value in gauge.read(health)]
        families.append(Family(gauge.metric, samples))
    return families


def _labels(metric: Metric, group: Group, labels: Iterable[str] = ()) -> dict[str, str]:
    return dict(zip((*GROUP_LABELS, *metric.labels), (*group, *labels), strict=True))


def _moments(history: History, known: Iterable[Group]) -> dict[Group, Moment]:
    """The last seconds of every known group, with the same figures as the dashboard. A group
    without living processes has no gauges but their number."""
    processes = history.processes(window_s=MAX_WINDOW_S)
    alive = Counter((each.host, each.group) for each in processes if each.alive)
    intervals = [each.identity.get("telemetry_interval", 0) for each in processes if each.alive]
    window_s = min(MAX_WINDOW_S, max([WINDOW_S, *(2 * each for each in intervals)]))
    now = history.now()
    span = Range(now - window_s, now)
    records = dict(history.per_process(span.start, span.end, EVERYTHING))
    groups = {
        (each["host"], each["group"]): each
        for each in measure_groups(history, span, processes, records)
    }
    return {
        group: Moment(alive[group], groups.get(group) if alive[group] else None) for group in known
    }
