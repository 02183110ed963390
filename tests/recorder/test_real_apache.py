"""`headway telemetry` records a real Apache with mod_wsgi from PyPI."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache import MISSING, Apache, Shape
from launch import headway
from real_load import Load
from recorded import Recorded

TIMEOUT_S = 30
REQUESTS, CLIENTS = 1_500, 10

pytestmark = [
    pytest.mark.slow("starts Apache with mod_wsgi"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that Apache's own user reaches, which pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="headway-apache-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def test_seed_000s_workload_is_recorded_with_its_throughput(folder: Path) -> None:
    recorder = Recorded(folder, "--socket-mode", "0666")
    try:
        site = folder / "site"
        site.mkdir()
        site.chmod(0o755)
        shape = Shape(slow_s=0.4, options="switch-interval=0.005")
        began = time.time()
        with Apache(site, Path(recorder.socket), shape) as apache:
            before = requests(recorder, began)
            load = Load(apache.port, "/deadline", CLIENTS, REQUESTS)
            assert apache.get("/slow") == 200
            deadline = time.monotonic() + TIMEOUT_S
            while requests(recorder, began) < load.requests + 2:
                assert time.monotonic() < deadline, f"{requests(recorder, began)} were recorded"
                time.sleep(0.2)
            counted = requests(recorder, began)
            # One request to see that it answers, and one that is slow.
            assert counted == pytest.approx(load.requests + 2, rel=0.01)
            answer = recorder.ask(f"summary?from={began}&group=site")
            check_summary(answer["summary"], load)
            check_config(answer["config"])
            assert answer["verdict"]["sample"]["requests"] == counted
            shown = headway("top", recorder.url, "--once", "--view", "slow")
            assert "/slow" in shown.stdout, shown.stdout + shown.stderr
        assert before <= 1
        check_end(recorder)
    finally:
        recorder.stop()


def requests(recorder: Recorded, began: float) -> int:
    summary = recorder.ask(f"summary?from={began}&group=site")["summary"]
    return int(summary["requests"]) if summary else 0


def check_summary(summary: dict, load: Load) -> None:
    assert summary["status"]["2xx"] == load.requests + 2
    assert summary["exact"] is False
    # The response time of mod_wsgi is a part of the time that a client waits.
    assert 0.004 <= summary["application"]["mean"] <= sum(load.latencies_s) / load.requests + 0.002
    assert summary["gil_wait"]["count"] == load.requests + 2


def check_config(config: dict) -> None:
    assert config["server"] == "mod_wsgi 6.1.1"
    assert config["threads"] == 5
    assert config["switch_interval"] == 0.005


def check_end(recorder: Recorded) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        events = recorder.ask("lifecycle?from=-600&group=site")["events"]
        stopped = [each for each in events if each["event"] == "process_stopped"]
        if len(stopped) == 2:
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert {each["shutdown_reason"] for each in stopped} == {"shutdown_signal"}
