"""The metrics of /metrics, pushed by OTLP over HTTP (`headway telemetry --otlp URL`), with
OpenTelemetry's SDK.

A thread of its own collects and sends, so a receiver that is slow or away holds up nobody. All sums
are cumulative: what a push that failed would have said, the next one says. The SDK's instruments
take single measurements and not counts by bucket, so its data model is filled in directly, and its
exporter encodes, compresses, retries and sends.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headway import __version__
from headway.errors import CommandError
from headway.extras import how_to_install
from headway.recorder.export.families import Family, Sample, collect
from headway.recorder.metrics.definitions import COUNTER, HISTOGRAM
from headway.recorder.metrics.totals import Buckets
from headway.recorder.query.history import History

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

DEFAULT_INTERVAL_S = 15.0
# One push, with the exporter's own retries.
TIMEOUT_S = 5.0
SIGNAL_PATH = "/v1/metrics"
MAX_REASON = 200
# OpenTelemetry writes units as UCUM does.
UNITS = {"seconds": "s", "bytes": "By"}
Attributes = dict[str, str]


def parse_url(text: str) -> str:
    """Raises `ValueError`. Where there is no path, it is the one that OTLP sets."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must be a URL, such as http://collector:4318")
    if parts.username is not None or parts.fragment:
        raise ValueError("it may have neither a user nor a fragment")
    # Raises where it is no port.
    parts.port  # noqa: B018
    return parts._replace(path=SIGNAL_PATH).geturl() if parts.path in ("", "/") else text


def parse_header(text: str) -> tuple[str, str]:
    """Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not equals or not name.replace("-", "").isalnum() or not name.isascii():
        raise ValueError("it must be NAME=VALUE, such as Authorization='Bearer xyz'")
    if not value.isprintable() or not value.isascii():
        raise ValueError("its value must be printable ASCII")
    return name, value


def make_exporter(url: str, headers: dict[str, str]) -> OTLPMetricExporter:
    """Raises `CommandError` with exit code 2 where the SDK is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as error:
        raise CommandError(
            f"--otlp needs OpenTelemetry's SDK ({error}): {how_to_install('otlp')}", exit_code=2
        ) from None
    return OTLPMetricExporter(url, headers=headers, timeout=TIMEOUT_S, compression=Compression.Gzip)


class Pusher:
    """From `start` to `stop`. `error` is why the last push failed; empty if it did not."""

    def __init__(
        self,
        history: History,
        exporter: OTLPMetricExporter,
        url: str,
        interval_s: float,
        tell: Callable[[str], None],
    ) -> None:
        self._history = history
        self._exporter = exporter
        self._url = url
        self._interval_s = interval_s
        self._tell = tell
        self._ended = threading.Event()
        self._complaint = Complaint()
        self._thread = threading.Thread(target=self._run, name="headway-otlp", daemon=True)
        self.error = ""

    def start(self) -> None:
        self._complaint.take_over()
        self._thread.start()

    def stop(self) -> None:
        """Sends what was counted last, unless nobody took the push before."""
        self._ended.set()
        if self.error:
            # Ends a pause between two tries.
            self._exporter.shutdown()
        self._thread.join()
        if not self.error:
            self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._push()
        if not self.error:
            self._push()

    def _push(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        self._complaint.last = ""
        try:
            data = as_metrics_data(collect(self._history), self._history.now())
            result = self._exporter.export(data)
            error = (
                "" if result is MetricExportResult.SUCCESS else self._complaint.last or "no reason"
            )
        except Exception as unforeseen:
            # Whatever a library or a damaged store does, the next push is tried.
            error = f"{type(unforeseen).__name__}: {unforeseen}"
        if bool(error) != bool(self.error):
            what = (
                f"cannot be reached: {error}; it is tried again" if error else "takes metrics again"
            )
            self._tell(f"--otlp {self._url} {what}")
        self.error = error


class Complaint(logging.Handler):
    """What the exporter last logged. It says so at every try, and has no other way to tell why;
    our log gets one line for an outage."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def take_over(self) -> None:
        for name in ("opentelemetry", "urllib3"):
            logger = logging.getLogger(name)
            logger.propagate = False
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        # The reason is in the warnings before the error that ends the tries.
        if not self.last or record.levelno < logging.ERROR:
            message = " ".join(record.getMessage().split())
            errno = re.search(r"\[Errno \d+\] ([^'\")]+)", message)
            self.last = errno[1] if errno else message[:MAX_REASON]


def as_metrics_data(families: list[Family], now: float) -> MetricsData:
    """What the SDK would have made of instruments."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [as_metric(family, now) for family in families if family.samples]
    scope = InstrumentationScope("headway", __version__)
    resource = Resource({"service.name": "headway-telemetry", "service.version": __version__})
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def as_metric(family: Family, now: float) -> Metric:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        Sum,
    )

    now_ns = nanoseconds(now)

    def number(sample: Sample) -> NumberDataPoint:
        assert not isinstance(sample.value, Buckets), "a histogram is no number"
        started_ns = nanoseconds(sample.started)
        return NumberDataPoint(sample.labels, started_ns, now_ns, sample.value)

    def histogram(sample: Sample) -> HistogramDataPoint:
        buckets = sample.value
        assert isinstance(buckets, Buckets), "a number is no histogram"
        return HistogramDataPoint(
            attributes=sample.labels,
            start_time_unix_nano=nanoseconds(sample.started),
            time_unix_nano=now_ns,
            count=buckets.count,
            sum=buckets.sum,
            bucket_counts=buckets.counts,
            explicit_bounds=buckets.bounds,
            # Of all time, which is of use to nobody; left out.
            min=None,
            max=None,
        )

    metric, samples = family
    cumulative = AggregationTemporality.CUMULATIVE
    data: Histogram | Sum | Gauge
    if metric.kind == HISTOGRAM:
        data = Histogram([histogram(each) for each in samples], cumulative)
    elif metric.kind == COUNTER:
        data = Sum([number(each) for each in samples], cumulative, is_monotonic=True)
    else:
        data = Gauge([number(each) for each in samples])
    return Metric(metric.otlp_name, metric.help, UNITS.get(metric.unit, ""), data)


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
