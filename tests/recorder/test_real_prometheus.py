"""Debian's Prometheus scrapes the recorder, and answers with percentiles like ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from prometheus import Prometheus, check, scraping
from real_load import Load
from recorded import Recorded
from served import FREE_THREADING, Served

pytestmark = pytest.mark.slow("starts Prometheus")

TIMEOUT_S = 40
REQUESTS = 400


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A recorder whose server has served, and is silent since."""
    recorder = Recorded(tmp_path_factory.mktemp("scraped"))
    try:
        options = ("--telemetry", f"unix:{recorder.socket}", "--telemetry-interval", "0.5")
        with Served("telemetry_pages:app", *options, "--threads", "4") as server:
            Load(server.address[1], "/deadline", 4, REQUESTS)
            deadline = time.monotonic() + TIMEOUT_S
            while recorder.ask("summary?from=-600")["summary"]["requests"] < REQUESTS:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield recorder
    finally:
        recorder.stop()


def metrics(recorder: Recorded) -> bytes:
    with urlopen(f"{recorder.url}/metrics", timeout=TIMEOUT_S) as answer:
        text: bytes = answer.read()
        return text


def test_promtool_finds_nothing_wrong_with_the_metrics(scraped: Recorded) -> None:
    assert check("metrics", said=metrics(scraped)) == b""


@pytest.fixture(scope="module")
def prometheus(scraped: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    target = scraped.url.removeprefix("http://")
    with Prometheus(tmp_path_factory.mktemp("prometheus"), scraping(target)) as server:
        server.wait_for('up{job="headway"} == 1', 1)
        yield server


def test_it_counts_every_request(scraped: Recorded, prometheus: Prometheus) -> None:
    counted = prometheus.wait_for("sum(headway_request_duration_seconds_count)")
    assert counted == scraped.ask("summary?from=-600")["summary"]["requests"] == REQUESTS


@pytest.mark.parametrize(
    ("histogram", "metric"),
    [
        ("headway_request_duration_seconds", "response"),
        ("headway_request_application_duration_seconds", "application"),
        ("headway_request_gil_wait_seconds", "gil_wait"),
    ],
)
@pytest.mark.parametrize(("name", "share"), [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)])
def test_its_percentile_is_within_one_bucket_of_ours(
    scraped: Recorded, prometheus: Prometheus, histogram: str, metric: str, name: str, share: float
) -> None:
    """Both count the same buckets: theirs is interpolated in one of them, ours is a bound of the
    finer scale, so they are in the same bucket or in two that touch."""
    if metric == "gil_wait" and FREE_THREADING:
        pytest.skip("there is no GIL to wait for")
    theirs = prometheus.wait_for(f"histogram_quantile({share}, sum by (le) ({histogram}_bucket))")
    ours = scraped.ask("summary?from=-600")["summary"][metric][name]
    uppers = bounds_of(metrics(scraped), histogram)
    assert abs(bucket_of(theirs, uppers) - bucket_of(ours, uppers)) <= 1, (theirs, ours)


def bounds_of(text: bytes, histogram: str) -> list[float]:
    found = {
        line.partition('le="')[2].partition('"')[0]
        for line in text.decode().splitlines()
        if line.startswith(f"{histogram}_bucket")
    }
    return sorted(map(float, found))


def bucket_of(value: float, uppers: list[float]) -> int:
    """The first whose bound is not below."""
    return next(number for number, upper in enumerate(uppers) if value <= upper)
