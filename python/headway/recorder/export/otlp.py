"""The metrics of /metrics, pushed by OTLP over HTTP (`headway telemetry --otlp URL`), with
OpenTelemetry's SDK.

A separate thread collects and sends, so a slow or unreachable receiver delays nothing else. All
sums are cumulative, so the next push contains the data of a failed one. The SDK's instruments
accept single measurements but not counts by bucket, so this module fills in the SDK's data model
directly; the SDK's exporter encodes, compresses, retries and sends.
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
# The time limit of one push, including the exporter's own retries.
TIMEOUT_S = 5.0
SIGNAL_PATH = "/v1/metrics"
MAX_REASON = 200
# OpenTelemetry uses the units of UCUM.
UNITS = {"seconds": "s", "bytes": "By"}


def parse_url(text: str) -> str:
    """Returns the URL. A URL without a path gets OTLP's default path. Raises `ValueError`."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must be a URL, such as http://collector:4318")
    if parts.username is not None or parts.fragment:
        raise ValueError("it may have neither a user nor a fragment")
    # Reading the attribute raises `ValueError` for an invalid port.
    parts.port  # noqa: B018
    return parts._replace(path=SIGNAL_PATH).geturl() if parts.path in ("", "/") else text


def parse_header(text: str) -> tuple[str, str]:
    """Returns the name and value of a header. Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not equals or not name.replace("-", "").isalnum() or not name.isascii():
        raise ValueError("it must be NAME=VALUE, such as Authorization='Bearer xyz'")
    if not value.isprintable() or not value.isascii():
        raise ValueError("its value must be printable ASCII")
    return name, value


def make_exporter(url: str, headers: dict[str, str]) -> OTLPMetricExporter:
    """Returns the exporter. Raises `CommandError` with exit code 2 if the SDK is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as error:
        raise CommandError(
            f"--otlp needs OpenTelemetry's SDK ({error}): {how_to_install('otlp')}", exit_code=2
        ) from None
    return OTLPMetricExporter(url, headers=headers, timeout=TIMEOUT_S, compression=Compression.Gzip)


class Pusher:
    """Pushes metrics from `start` to `stop`. `error` is the reason why the last push failed, or
    ""."""

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
        """Pushes a last time, unless the previous push failed."""
        self._ended.set()
        if self.error:
            # Interrupts the pause between two retries.
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
            # An error of a library or of a damaged store must not end the thread.
            error = f"{type(unforeseen).__name__}: {unforeseen}"
        if bool(error) != bool(self.error):
            what = (
                f"cannot be reached: {error}; it is tried again" if error else "takes metrics again"
            )
            self._tell(f"--otlp {self._url} {what}")
        self.error = error


class Complaint(logging.Handler):
    """A log handler that keeps the exporter's last message, which is the only source of the reason
    for a failure. The exporter logs every retry; the recorder's log gets one line per outage."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def take_over(self) -> None:
        for name in ("opentelemetry", "urllib3"):
            logger = logging.getLogger(name)
            logger.propagate = False
            logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        # The reason is in the warnings before the error that ends the retries.
        if not self.last or record.levelno < logging.ERROR:
            message = " ".join(record.getMessage().split())
            errno = re.search(r"\[Errno \d+\] ([^'\")]+)", message)
            self.last = errno[1] if errno else message[:MAX_REASON]


def as_metrics_data(families: list[Family], now: float) -> MetricsData:
    """The families in the SDK's data model, as its instruments would produce them."""
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
            # Left out, because extremes over the whole run are of little use.
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
