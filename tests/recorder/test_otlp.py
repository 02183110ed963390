"""`headway telemetry --otlp`: a real receiver, which reads what comes as OTLP's protobuf."""

from __future__ import annotations

import gzip
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from launch import environment, run_main, start
from recorded import Recorded
from test_exposition import LIVELY, LOOPS
from test_recorder import wait_until
from ticks import Bench, send, tick

from headway.recorder.export import otlp
from headway.recorder.metrics.definitions import METRICS

TIMEOUT_S = 60

pytest.importorskip("opentelemetry.sdk", reason="tests/requirements-otlp.txt is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (  # noqa: E402
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1 import metrics_pb2  # noqa: E402

Metrics = dict[str, metrics_pb2.Metric]


class Receiver:
    """An HTTP server on `port`; what it got is in `requests`, as (path, headers, metrics)."""

    def __init__(self, port: int = 0, status: int = 200) -> None:
        self.requests: list[tuple[str, dict[str, str], Metrics]] = []
        self.status = status
        self.changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                headers = {name.lower(): value for name, value in self.headers.items()}
                with receiver.changed:
                    receiver.requests.append((self.path, headers, read(body)))
                    receiver.changed.notify_all()
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait_for(self, condition: Any) -> Metrics:
        """The latest push that is as wanted."""
        with self.changed:
            assert self.changed.wait_for(
                lambda: self.requests and condition(self.requests[-1][2]), TIMEOUT_S
            ), f"{len(self.requests)} pushes came, and none as wanted"
            return self.requests[-1][2]


def read(body: bytes) -> Metrics:
    request = ExportMetricsServiceRequest.FromString(body)
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "headway"
    return {metric.name: metric for metric in scope.metrics}


def attributes(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def number(metrics: Metrics, name: str, **labels: str) -> float:
    metric = metrics[name]
    points = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
    (point,) = [point for point in points if labels.items() <= attributes(point).items()]
    return float(point.as_double if point.HasField("as_double") else point.as_int)


@pytest.fixture(name="bench")
def _bench() -> Iterator[Bench]:
    bench = Bench(None)
    yield bench
    bench.stop()


def push_once(bench: Bench, receiver: Receiver, **headers: str) -> Metrics:
    """The metrics that a pusher sends as it ends."""
    url = otlp.parse_url(receiver.url)
    pusher = otlp.Pusher(
        bench.history, otlp.make_exporter(url, headers), url, 3600, bench.lines.append
    )
    pusher.start()
    pusher.stop()
    assert bench.lines == []
    return receiver.requests[-1][2]


def test_what_comes_is_what_metrics_shows(bench: Bench) -> None:
    bench.run(12, (100, 101), **LIVELY, **LOOPS)
    with Receiver() as receiver:
        metrics = push_once(bench, receiver, authorization="Bearer xyz")
    path, headers, _ = receiver.requests[0]
    assert path == "/v1/metrics"
    assert headers["authorization"] == "Bearer xyz"
    assert headers["content-type"] == "application/x-protobuf"
    # Without a store, and with a GIL.
    absent = re.compile(r"headway\.(recorder_(store|not_stored)|parked|stopped_world_time)")
    assert set(metrics) == {each.otlp_name for each in METRICS if not absent.match(each.otlp_name)}
    assert number(metrics, "headway.requests", host="alpha", group="shop") == 240
    assert number(metrics, "headway.gil_time", state="held") == pytest.approx(12)
    assert number(metrics, "headway.loop_late_time", part="blocked") == pytest.approx(6)
    assert sum(metrics["headway.loop_lag"].histogram.data_points[0].bucket_counts) == 240
    assert number(metrics, "headway.processes") == 2
    assert number(metrics, "headway.verdict", headway_verdict="idle") == 0
    assert metrics["headway.gil_time"].unit == "s"
    assert metrics["headway.resident_memory"].unit == "By"
    counter = metrics["headway.requests"].sum
    assert counter.is_monotonic
    assert counter.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = counter.data_points
    assert 0 < point.start_time_unix_nano < point.time_unix_nano


def test_histograms_have_all_their_buckets(bench: Bench) -> None:
    bench.run(3, **LIVELY)
    with Receiver() as receiver:
        metrics = push_once(bench, receiver)
    histogram = metrics["headway.gil_take_wait"].histogram
    assert histogram.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = histogram.data_points
    assert point.count == sum(point.bucket_counts) == 300
    assert point.sum == pytest.approx(3 * (60 * 0.001 + 40 * 0.000_02), rel=0.1)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    full = [
        (bound, count)
        for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False)
        if count
    ]
    assert [count for _, count in full] == [120, 180]
    assert [bound for bound, _ in full] == [0.000_024_576, 0.001_048_576]
    assert not point.HasField("min")


def test_a_receiver_that_was_away_misses_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The exporter gives the reason of a failure only where there is time for a second try, which
    # begins after 1.2 seconds at most.
    monkeypatch.setattr(otlp, "TIMEOUT_S", 2.0)
    with Receiver() as gone:
        url = otlp.parse_url(gone.url)
    pusher = otlp.Pusher(bench.history, otlp.make_exporter(url, {}), url, 0.05, bench.lines.append)
    bench.run(2)
    pusher.start()
    wait_until(lambda: bench.lines)
    complaint = f"--otlp {url} cannot be reached: Connection refused; it is tried again"
    assert bench.lines == [complaint]
    with Receiver(gone.port) as receiver:
        metrics = receiver.wait_for(lambda metrics: "headway.requests" in metrics)
        assert number(metrics, "headway.requests") == 20
        wait_until(lambda: len(bench.lines) > 1)
        assert bench.lines == [complaint, f"--otlp {url} takes metrics again"]
        bench.run(1)
        receiver.wait_for(lambda metrics: number(metrics, "headway.requests") == 30)
        pusher.stop()


def test_the_recorder_pushes_what_came_by_its_end(tmp_path: Path) -> None:
    with Receiver() as receiver:
        recorder = Recorded(tmp_path, "--otlp", receiver.url)
        try:
            send(recorder.socket, tick(sequence=1), tick(sequence=2))
            recorder.wait_until_received(2)
        finally:
            status = recorder.stop()
        assert status == 0
        assert "--otlp" not in recorder.stderr
        assert number(receiver.requests[-1][2], "headway.requests") == 20


@pytest.mark.slow("waits for the 5 seconds of a push that fails")
def test_the_recorder_pushes_to_a_receiver_that_was_away(tmp_path: Path) -> None:
    with Receiver() as gone:
        url = gone.url
    socket_path = tmp_path / "telemetry.sock"
    process = start(
        "telemetry", "--no-http", "--no-store", "--listen", f"unix:{socket_path}",
        "--otlp", url, "--otlp-interval", "1",
    )  # fmt: skip
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == f"headway telemetry: receiving at unix:{socket_path}\n"
        send(socket_path, tick(sequence=1), tick(sequence=2))
        complaint = process.stderr.readline()
        assert complaint == (
            f"headway telemetry: --otlp {url}/v1/metrics cannot be reached: Connection refused; "
            "it is tried again\n"
        )
        with Receiver(gone.port) as receiver:
            metrics = receiver.wait_for(lambda metrics: "headway.requests" in metrics)
            assert number(metrics, "headway.requests") == 20
            again = process.stderr.readline()
            assert again == f"headway telemetry: --otlp {url}/v1/metrics takes metrics again\n"
            send(socket_path, tick(sequence=3))
            receiver.wait_for(lambda metrics: number(metrics, "headway.requests") == 30)
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, rest) == (0, "")
    finally:
        if process.poll() is None:
            process.kill()
        with process:
            pass


def test_an_outage_is_one_line_however_long(bench: Bench) -> None:
    bench.run(1)
    with Receiver(status=400) as receiver:
        url = otlp.parse_url(receiver.url)
        pusher = otlp.Pusher(
            bench.history, otlp.make_exporter(url, {}), url, 0.05, bench.lines.append
        )
        pusher.start()
        with receiver.changed:
            assert receiver.changed.wait_for(lambda: len(receiver.requests) >= 3, TIMEOUT_S)
        pusher.stop()
    assert len(bench.lines) == 1
    assert bench.lines[0].startswith(f"--otlp {url} cannot be reached: ")
    assert "400" in bench.lines[0]


def test_the_recorder_receives_while_a_receiver_hangs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = otlp.parse_url(f"http://127.0.0.1:{silent.getsockname()[1]}")
        pusher = otlp.Pusher(
            bench.history, otlp.make_exporter(url, {}), url, 0.01, bench.lines.append
        )
        pusher.start()
        connection, _ = silent.accept()
        with connection:
            # It is being pushed to now.
            bench.run(5)
            assert bench.recorder.received == 5
    pusher.stop()


def test_without_the_sdk_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not here')\n")
    result = subprocess.run(
        [sys.executable, "-m", "headway", "telemetry", "--otlp", "http://127.0.0.1:1",
         "--listen", f"unix:{tmp_path}/t.sock", "--store", f"{tmp_path}/t.sqlite"],
        env={**environment(), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr == (
        "headway telemetry: --otlp needs OpenTelemetry's SDK (not here): in Headway's source tree "
        "run `make build EXTRAS=otlp`, or `pip install '.[otlp]'` in an environment of your own\n"
    )
    # Nothing was begun.
    assert {each.name for each in tmp_path.iterdir()} <= {"opentelemetry.py", "__pycache__"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--otlp", "collector:4318"], "it must be a URL, such as http://collector:4318"),
        (["--otlp", "ftp://collector"], "it must be a URL"),
        (["--otlp", "http://u:p@collector"], "neither a user nor a fragment"),
        (["--otlp", "http://collector:99999"], "Port out of range"),
        (["--otlp-interval", "5"], "--otlp-interval: allowed with --otlp only"),
        (["--otlp", "http://c", "--otlp-interval", "0"], "a number of seconds from 1 to 3600"),
        (["--otlp", "http://c", "--otlp-interval", "nan"], "a number of seconds from 1 to 3600"),
        (["--otlp-header", "a=b"], "--otlp-header: allowed with --otlp only"),
        (["--otlp", "http://c", "--otlp-header", "secret"], "it must be NAME=VALUE"),
        (["--otlp", "http://c", "--otlp-header", "a=b\nc: d"], "must be printable ASCII"),
    ],
)
def test_wrong_options_get_one_line(options: list[str], complaint: str) -> None:
    result = run_main("telemetry", *options)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert "secret" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_path_is_kept_and_none_becomes_otlps() -> None:
    assert otlp.parse_url("https://c:4318") == "https://c:4318/v1/metrics"
    assert otlp.parse_url("https://c:4318/") == "https://c:4318/v1/metrics"
    prometheus = "http://p:9090/api/v1/otlp/v1/metrics"
    assert otlp.parse_url(prometheus) == prometheus
