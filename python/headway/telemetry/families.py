"""What every metric is at this moment, for whoever sends or shows it: `exposition` and `otlp`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from headway import _native
from headway.telemetry.history import History
from headway.telemetry.metrics import (
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
from headway.telemetry.rollup import merge
from headway.telemetry.selection import EVERYTHING
from headway.telemetry.shape import configure
from headway.telemetry.summary import Record, summarize
from headway.telemetry.totals import Buckets, Group, Sums, Totals
from headway.telemetry.verdicts import judge

# What is meant by "now"; longer where processes report less often.
WINDOW_S = 10.0
MAX_WINDOW_S = 120.0
MAX_HOLDS = 200


class Sample(NamedTuple):
    """`started` is since when a counter or histogram counts; 0 for what is no sum."""

    labels: dict[str, str]
    value: float | Buckets
    started: float = 0.0


class Family(NamedTuple):
    metric: Metric
    samples: list[Sample]


def collect(history: History) -> list[Family]:
    """In the order of `metrics.METRICS`; of each, the groups in order."""
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
    """The last seconds of every group that is counted; also of those that have no process left."""
    alive: dict[Group, int] = defaultdict(int)
    window_s = WINDOW_S
    for process in history.processes(window_s=MAX_WINDOW_S):
        if process.alive:
            alive[process.host, process.group] += 1
            interval = process.identity.get("telemetry_interval")
            if isinstance(interval, float):
                window_s = min(MAX_WINDOW_S, max(window_s, 2 * interval))
    records: dict[Group, list[bytes]] = defaultdict(list)
    # A tick may be stamped a little ahead of our clock.
    end = history.now() + 1.0
    start = end - 1.0 - window_s
    for process, packed in history.per_process(start, end, EVERYTHING):
        records[process.host, process.group].append(packed)
    holds: dict[Group, list[dict[str, object]]] = defaultdict(list)
    for hold in history.events("hold", start, end, EVERYTHING, MAX_HOLDS):
        holds[hold["host"], hold["group"]].append(hold)
    found = {}
    for group in known:
        record: Record = {}
        if group in records:
            record = _native.telemetry_read(merge(records[group]))
        summary = summarize(record, window_s, alive[group])
        verdict = judge(record, summary, configure(record, alive[group]), holds[group])
        found[group] = Moment(alive[group], record, summary, verdict["name"])
    return found
