"""mod-wsgi-telemetry from PyPI, unchanged, receives from a real server of Headway's: its state, its
dump, its terminal and its page in Chromium show what the clients saw."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from apache import CLIENTS
from real_load import Load
from served import FREE_THREADING, Served

VIEWER = CLIENTS / "bin" / "mod_wsgi-telemetry"
CHROMIUM = shutil.which("chromium")
TIMEOUT_S = 30
SWITCH_INTERVAL_S = 0.002
PROCESSES, THREADS, REQUESTS = 2, 3, 600

pytestmark = [
    pytest.mark.slow("starts mod_wsgi's viewer, and a browser"),
    pytest.mark.skipif(
        not VIEWER.exists(), reason="mod-wsgi-telemetry is missing: scripts/telemetry-clients"
    ),
    pytest.mark.skipif(FREE_THREADING, reason="there is no GIL to wait for"),
]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Viewer:
    """`mod_wsgi-telemetry serve`."""

    def __init__(self, path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        words = [str(VIEWER), "serve", "--listen", f"unix:{path}", "--http-port", str(self.port)]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            wait_for(self._answers)
        except AssertionError:
            self.stop()
            raise

    def _answers(self) -> bool:
        try:
            self.state()
        except OSError:
            assert self.process.poll() is None, "mod_wsgi-telemetry ended"
            return False
        return True

    def state(self) -> Any:
        with urlopen(f"http://127.0.0.1:{self.port}/api/state", timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def ticks(self) -> list[dict[str, Any]]:
        return [
            sample["fields"]
            for process in self.state()["processes"]
            for sample in process["samples"]
        ]

    def count(self) -> int:
        return sum(tick.get("request_count", 0) for tick in self.ticks())

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def serving(path: Path) -> Iterator[Served]:
    options = ["--telemetry", f"unix:{path}", "--telemetry-interval", "0.5"]
    options += ["--slow-requests", "0.3", "--switch-interval", str(SWITCH_INTERVAL_S)]
    options += ["--processes", str(PROCESSES), "--threads", str(THREADS), "--policy", "interval"]
    with Served("telemetry_pages:app", *options) as server:
        yield server


class Shown:
    """The viewer after a load that it has heard all about."""

    def __init__(self, viewer: Viewer, load: Load) -> None:
        self.viewer = viewer
        self.load = load


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    path = tmp_path_factory.mktemp("viewer") / "t.sock"
    viewer = Viewer(path)
    try:
        with serving(path) as server:
            load = Load(server.address[1], "/deadline", PROCESSES * THREADS, REQUESTS)
            assert server.get("/slow").status == 200
            wait_for(lambda: viewer.count() >= load.requests + 1)
            yield Shown(viewer, load)
    finally:
        viewer.stop()


def test_its_state_has_every_request_and_no_error(shown: Shown) -> None:
    state = shown.viewer.state()
    assert state["decode_errors"] == 0
    assert shown.viewer.count() == shown.load.requests + 1
    assert len(state["processes"]) == PROCESSES
    assert {process["process_group"] for process in state["processes"]} == {"main"}
    started = [event["pid"] for event in state["lifecycle_events"]]
    assert set(started) == {process["pid"] for process in state["processes"]}


def test_its_state_has_the_phases_of_the_requests(shown: Shown) -> None:
    ticks = [tick for tick in shown.viewer.ticks() if tick.get("request_count")]
    for tick in ticks:
        phases = ("server_time", "queue_time", "daemon_time", "application_time")
        total = sum(tick.get(phase, 0.0) for phase in phases)
        # Until the response has been handed over, which takes a busy machine longer.
        assert total - 1e-4 <= tick["request_time"] <= total + tick["output_write_time_max"] + 0.1
        # 3 ms of Python and 1 ms of waiting, or the slow page.
        assert tick["application_time_min"] >= 0.004
        assert sum(tick["application_time_buckets"]) == tick["request_count"]
        assert sum(tick["gil_wait_time_buckets"]) == tick["request_count"]
        assert tick["gil_wait_time"] <= tick["application_time"]
    spent = sum(tick["request_time"] * tick["request_count"] for tick in ticks) - 0.7
    assert spent <= sum(shown.load.latencies_s) + 0.1
    assert sum(tick["status_2xx_total"] for tick in ticks) == shown.load.requests + 1


def test_its_state_has_the_gil_waits_and_the_switch_interval(shown: Shown) -> None:
    ticks = shown.viewer.ticks()
    assert {tick["switch_interval"] for tick in ticks} == {SWITCH_INTERVAL_S}
    waited = sum(tick.get("gil_wait_time", 0) * tick.get("request_count", 0) for tick in ticks)
    # Three threads that compute share each GIL.
    assert waited > 0.05 * sum(shown.load.latencies_s)


def test_its_state_has_the_slow_request(shown: Shown) -> None:
    wait_for(lambda: shown.viewer.state()["slow_requests"])
    entries = [each["entry"] for each in shown.viewer.state()["slow_requests"]]
    assert [entry["path_info"] for entry in entries if entry["duration"] >= 0.6] == ["/slow"]


def test_its_terminal_shows_the_throughput(shown: Shown) -> None:
    url = f"ws://127.0.0.1:{shown.viewer.port}/ws"
    ended = subprocess.run(
        [VIEWER, "top", "--once", "--url", url], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stderr
    assert "group=main" in ended.stdout
    assert f"/{PROCESSES * THREADS} threads" in ended.stdout
    # "1m" is over what it has, so at most the throughput of the load and not nothing.
    rate = float(re.search(r"1m ([\d.]+)", ended.stdout)[1])
    assert 0 < rate <= 2 * shown.load.requests / shown.load.seconds


def test_its_dump_decodes_what_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "t.sock"
    words = [str(VIEWER), "dump", "--listen", f"unix:{path}", "--format", "json", "--count", "8"]
    dump = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(path.exists)
        with serving(path) as server:
            server.get("/")
            said, complaints = dump.communicate(timeout=TIMEOUT_S)
    finally:
        if dump.poll() is None:
            dump.kill()
            dump.communicate()
    assert complaints == ""
    found = [json.loads(line) for line in said.splitlines()]
    assert {"process_started", "request_metrics"} <= {each["kind"] for each in found}
    ticks = [each["fields"] for each in found if each["kind"] == "request_metrics"]
    assert {tick["switch_interval"] for tick in ticks} == {SWITCH_INTERVAL_S}


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: scripts/debian-packages")
def test_its_page_shows_throughput_phases_gil_wait_and_switch_interval(shown: Shown) -> None:
    """Read from the statistics that the page itself puts together for the clipboard."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing: tests/requirements-dashboard.txt"
    )
    complaints: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.add_init_script(
                "Object.defineProperty(navigator, 'clipboard', {value: {writeText: "
                "async (text) => { window.copied = text; }}});"
            )
            page.goto(f"http://127.0.0.1:{shown.viewer.port}/")
            page.wait_for_function("document.getElementById('conn').textContent == 'connected'")
            page.wait_for_function("document.querySelectorAll('#procs > *').length >= 2")
            page.wait_for_function("document.getElementById('live_rps').textContent != ''")
            page.click("#help_btn")
            page.click("#help_copy_stats")
            page.wait_for_function("window.copied")
            text = page.evaluate("window.copied")
        finally:
            browser.close()
    assert complaints == []
    assert f"- Python GIL switch interval: {SWITCH_INTERVAL_S * 1e3:.1f} ms" in text
    counted = {
        match[1]: int(match[2].replace(",", ""))
        for match in re.finditer(r"### (.+?)\n\n- requests in window: ([\d,]+)", text)
    }
    gil = next(name for name in counted if name.startswith("GIL wait"))
    application = next(name for name in counted if name.startswith("Application"))
    assert counted[gil] == counted[application]
    assert 0 < counted[application] <= shown.load.requests + 1
