"""`headway serve --dashboard`: a recorder beside the workers, which never stands in their way."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from served import APPS, TIMEOUT_S, Served, read_response


def start(tmp_path: Path, *options: str) -> Served:
    store = str(tmp_path / "telemetry.sqlite")
    return Served(
        "processes:application",
        *("--dashboard", "--dashboard-http", "127.0.0.1:0", "--dashboard-store", store),
        *("--telemetry-interval", "0.5", *options),
    )


def site_of(server: Served) -> str:
    return server.wait_for(r"headway telemetry: showing at (http://[\d.:]+)")[1]


def recorder_of(server: Served) -> int:
    """The pid of the recorder."""
    for pid in server.workers():
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"headway serve: dashboard" in command:
            return pid
    raise AssertionError(f"no recorder among {server.workers()}")


def ask(site: str, question: str) -> Any:
    with urlopen(f"{site}/api/v1/{question}", timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def wait_until(condition: Callable[[], bool], server: Served) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, server.stderr
        time.sleep(0.05)


def test_it_shows_the_servers_processes_from_the_beginning(tmp_path: Path) -> None:
    with start(tmp_path, "--processes", "2") as server:
        site = site_of(server)
        for _ in range(7):
            assert server.get("/pid").status == 200
        summary = "summary?from=-60&group=main"
        wait_until(lambda: ask(site, summary)["summary"]["requests"] == 7, server)
        workers = {each["pid"] for each in ask(site, "now")["processes"]}
        assert workers <= set(server.workers())
        events = ask(site, "lifecycle?from=-60")["events"]
        assert {each["pid"] for each in events if each["event"] == "process_started"} == workers
        with urlopen(f"{site}/", timeout=TIMEOUT_S) as page:
            assert page.status == 200
        recorder = recorder_of(server)
    assert server.process.returncode == 0
    assert not Path(f"/proc/{recorder}").exists()
    assert server.stderr.count("showing at") == 1


def test_its_end_is_nobodys_and_it_comes_back(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        first = recorder_of(server)
        os.kill(first, signal.SIGKILL)
        server.wait_for("the dashboard was ended by SIGKILL; it starts again in 1 s")
        assert server.get("/pid").status == 200
        wait_until(lambda: server.stderr.count("showing at") == 2, server)
        site = re.findall(r"showing at (http://[\d.:]+)", server.stderr)[1]
        assert recorder_of(server) != first
        served = server.get("/pid").status
        assert served == 200
        # Both requests, since a tick that was not heard is told again.
        wait_until(lambda: ask(site, "summary?from=-60")["summary"]["requests"] == 2, server)


def test_one_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site_of(server)
        recorder = recorder_of(server)
        os.kill(recorder, signal.SIGSTOP)
        try:
            for _ in range(50):
                assert server.get("/pid").status == 200
        finally:
            os.kill(recorder, signal.SIGCONT)


def test_sigterm_to_all_processes_is_not_for_it(tmp_path: Path) -> None:
    with start(tmp_path) as server, server.connect() as busy:
        site_of(server)
        recorder = recorder_of(server)
        begin_slow_request(busy)
        for pid in [*server.workers(), server.process.pid]:
            os.kill(pid, signal.SIGTERM)
        assert read_response(busy).status == 200
        assert server.stop(None) == 0
    assert "the dashboard" not in server.stderr
    assert not Path(f"/proc/{recorder}").exists()


def test_it_does_not_come_back_while_the_server_stops(tmp_path: Path) -> None:
    with start(tmp_path) as server, server.connect() as busy:
        site_of(server)
        begin_slow_request(busy)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        os.kill(recorder_of(server), signal.SIGKILL)
        server.wait_for("the dashboard was ended by SIGKILL; what is told from here on is lost")
        assert read_response(busy).status == 200
        assert server.stop(None) == 0
    assert server.stderr.count("the dashboard") == 1


def begin_slow_request(connection: socket.socket) -> None:
    connection.sendall(b"GET /slow?1 HTTP/1.1\r\nHost: a\r\n\r\n")
    time.sleep(0.2)


def test_an_address_that_is_taken_is_told_and_the_server_goes_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with start(tmp_path, "--dashboard-http", f"127.0.0.1:{port}") as server:
            server.wait_for("the dashboard is not there; the server goes on without")
            assert f"127.0.0.1:{port}" in server.stderr
            assert server.get("/pid").status == 200


def test_a_new_generation_reports_to_it_too(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        site = site_of(server)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("generation 2 serves")
        assert server.get("/pid").status == 200
        wait_until(lambda: ask(site, "summary?from=-60")["summary"]["requests"] == 1, server)
        told = ask(site, "lifecycle?from=-60")["events"]
        assert {"process_started", "process_stopped"} <= {each["event"] for each in told}


@pytest.mark.parametrize("address", ["0.0.0.0:8888", "example.org:1", "127.0.0.1"])
def test_it_is_for_this_machine(address: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "headway", "serve", "processes:application"),
            *("--app-dir", str(APPS), "--dashboard", "--dashboard-http", address),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    assert f"--dashboard-http: {address!r}: it must be HOST:PORT, the host localhost" in done.stderr
    assert done.stderr.count("\n") == 1
