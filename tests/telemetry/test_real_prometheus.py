"""Debian's Prometheus scrapes the recorder, and answers with percentiles like ours."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from real_load import Load
from recorded import Recorded
from served import FREE_THREADING, Served

ROOT = Path(__file__).resolve().parent.parent.parent
# Where scripts/debian-packages unpacks it.
UNPACKED = ROOT / ".venvs" / "debian" / "usr" / "bin"
TIMEOUT_S = 40
REQUESTS = 400


def program(name: str) -> str | None:
    found = UNPACKED / name
    return str(found) if found.exists() else shutil.which(name)


pytestmark = pytest.mark.skipif(
    program("prometheus") is None or program("promtool") is None,
    reason="prometheus is missing: scripts/debian-packages",
)


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


def metrics(recorder: Recorded) -> str:
    with urlopen(f"{recorder.url}/metrics", timeout=TIMEOUT_S) as answer:
        text: str = answer.read().decode()
        return text


def test_promtool_finds_nothing_wrong_with_the_metrics(scraped: Recorded) -> None:
    words = [str(program("promtool")), "check", "metrics"]
    checked = subprocess.run(
        words, input=metrics(scraped), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stderr == ""


class Prometheus:
    def __init__(self, recorder: Recorded, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        target = recorder.url.removeprefix("http://")
        configuration = folder / "prometheus.yml"
        configuration.write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs:\n"
            f"  - {{job_name: headway, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        words = [str(program("prometheus")), f"--config.file={configuration}"]
        words += [f"--storage.tsdb.path={folder / 'data'}"]
        words += [f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def ask(self, expression: str) -> list[Any]:
        query = urlencode({"query": expression})
        try:
            with urlopen(
                f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=TIMEOUT_S
            ) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            assert self.process.poll() is None, "prometheus ended"
            return []

    def wait_for(self, expression: str) -> float:
        """The value of the only row that it answers with."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := self.ask(expression)):
            assert time.monotonic() < deadline, f"{expression}: no answer"
            time.sleep(0.3)
        (row,) = found
        return float(row["value"][1])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def prometheus(scraped: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    server = Prometheus(scraped, tmp_path_factory.mktemp("prometheus"))
    try:
        assert server.wait_for('up{job="headway"} == 1') == 1
        yield server
    finally:
        server.stop()


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


def bounds_of(text: str, histogram: str) -> list[float]:
    found = {
        line.partition('le="')[2].partition('"')[0]
        for line in text.splitlines()
        if line.startswith(f"{histogram}_bucket")
    }
    return sorted(map(float, found))


def bucket_of(value: float, uppers: list[float]) -> int:
    """The first whose bound is not below."""
    return next(number for number, upper in enumerate(uppers) if value <= upper)
