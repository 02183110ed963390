"""Prometheus scrapes a recorder, and its quantiles are ours."""

from __future__ import annotations

import time
from bisect import bisect_left
from pathlib import Path

import pytest
from prometheus import Prometheus, scraping
from recorded import Recorded
from test_exposition import LIVELY
from ticks import STOPPED, message, send, tick

from headway.recorder.diagnosis.verdict import NAMES
from headway.recorder.metrics.definitions import REQUEST_BOUNDS

pytestmark = pytest.mark.slow("starts Prometheus")

# A wide spread, so that each quantile is in another bucket.
SPREAD = [(0.0007 * 1.13**n, 2 + n % 7) for n in range(60)]


def test_prometheus_knows_what_the_recorder_knows(tmp_path: Path) -> None:
    recorder = Recorded(tmp_path)
    try:
        now = time.time()
        said = {
            **LIVELY,
            "request_time_histogram": SPREAD,
            "process_started_stamp": now - 50,
            # So it is alive for as long as this may take.
            "telemetry_interval": 30.0,
        }
        send(recorder.socket, *(tick(pid, 1, now, **said) for pid in (100, 101)))
        recorder.wait_until_received(2)
        with Prometheus(tmp_path, scraping(recorder.url.removeprefix("http://"))) as prometheus:
            prometheus.wait_for("sum(headway_requests_total)", 20)
            histogram = recorder.ask("distribution?metric=response&from=-300")["histogram"]
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                ((labels, theirs),) = prometheus.ask(
                    f"histogram_quantile({share}, headway_request_duration_seconds_bucket)"
                )
                assert (labels["host"], labels["group"]) == ("alpha", "shop")
                in_bucket = bisect_left(REQUEST_BOUNDS, theirs)
                assert in_bucket == bisect_left(REQUEST_BOUNDS, histogram[name]), name
            prometheus.wait_for("count(headway_verdict) - sum(headway_verdict)", len(NAMES) - 1)
            # A process ends; what it did stays counted.
            gone = {"hostname": "alpha", "process_started_stamp": now - 50}
            send(recorder.socket, message(STOPPED, 101, 2, now, **gone), tick(100, 2, now, **said))
            prometheus.wait_for("headway_requests_total", 30)
            prometheus.wait_for("headway_processes", 1)
            prometheus.wait_for("resets(headway_requests_total[1m])", 0)
            prometheus.wait_for("sum(headway_recorder_malformed_total)", 0)
    finally:
        assert recorder.stop() == 0
