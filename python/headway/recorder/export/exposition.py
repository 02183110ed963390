"""`/metrics`: the families as text for Prometheus, or as OpenMetrics for clients that prefer it.

Both formats are simple, so this module writes them without a third-party package. The values of
labels come from processes: `receive.senders` makes them printable, and this module escapes
quotes. Pure except for `expose`, which reads the history.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate

from headway.recorder.export.families import Family, Sample, collect
from headway.recorder.metrics.definitions import STATES
from headway.recorder.metrics.totals import Buckets
from headway.recorder.query.history import History

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def expose(history: History, accept: str) -> tuple[str, bytes]:
    """The content type and the body for an Accept header; "" accepts any type."""
    is_open = prefers_open_metrics(accept)
    lines = write(collect(history), is_open)
    return OPEN_METRICS if is_open else TEXT, "".join(f"{line}\n" for line in lines).encode()


def prefers_open_metrics(accept: str) -> bool:
    """Whether an Accept header gives OpenMetrics a higher weight than plain text, the default."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for choice in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in choice.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if kind in weights:
            weights[kind] = max(weights[kind], weight)
    return weights["application/openmetrics-text"] > weights["text/plain"]


def write(families: list[Family], is_open: bool) -> Iterator[str]:
    """Yields the lines of either format."""
    for metric, samples in families:
        if not samples:
            continue
        name = metric.name if is_open else metric.sample_name
        kind = "gauge" if metric.kind == STATES and not is_open else metric.kind
        yield f"# HELP {name} {escape(metric.help)}"
        yield f"# TYPE {name} {kind}"
        if is_open and metric.unit:
            yield f"# UNIT {name} {metric.unit}"
        for sample in samples:
            if isinstance(sample.value, Buckets):
                yield from _write_buckets(name, sample, sample.value)
            else:
                yield f"{metric.sample_name}{labels_of(sample)} {number(sample.value)}"
            if is_open and sample.started:
                yield f"{metric.name}_created{labels_of(sample)} {number(sample.started)}"
    if is_open:
        yield "# EOF"


def _write_buckets(name: str, sample: Sample, buckets: Buckets) -> Iterator[str]:
    cumulative = list(accumulate(buckets.counts))
    for bound, count in zip((*buckets.bounds, math.inf), cumulative, strict=True):
        yield f"{name}_bucket{labels_of(sample, le=number(bound))} {count}"
    yield f"{name}_count{labels_of(sample)} {cumulative[-1]}"
    yield f"{name}_sum{labels_of(sample)} {number(buckets.sum)}"


def labels_of(sample: Sample, **more: str) -> str:
    pairs = [f'{name}="{escape(value, True)}"' for name, value in (sample.labels | more).items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def number(value: float) -> str:
    return "+Inf" if value == math.inf else repr(value)


def escape(text: str, is_quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if is_quoted else text
