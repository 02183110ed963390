"""The events of a real server under real requests: slow requests and long holds with their stacks,
passes of the garbage collector."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from heard import GC_EVENT, GC_SNAPSHOT, SLOW, STARTED, TICK, Ear
from launch import environment
from served import FREE_THREADING, Response, Served
from ticking import HEADWAY, INTERVAL, Ticking

pytestmark = pytest.mark.free_threading

APPLICATION = "depth:application"
has_gil = pytest.mark.skipif(FREE_THREADING, reason="without a GIL nobody holds it")
ACTIVE, COMPLETED = 0, 1


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    with Ear(tmp_path) as ear:
        yield ear


def serve(ear: Ear, *options: str, app: str = APPLICATION) -> Served:
    return Ticking(app, ear.target, "--threads", "3", *options)


class Asking(threading.Thread):
    def __init__(self, server: Served, target: str) -> None:
        super().__init__()
        self.answers: list[Response] = []
        self._server, self._target = server, target

    def run(self) -> None:
        self.answers.append(self._server.get(self._target))


@contextmanager
def asking(server: Served, target: str) -> Iterator[Asking]:
    """A request that runs meanwhile, and is answered by the end."""
    request = Asking(server, target)
    request.start()
    try:
        yield request
    finally:
        request.join()
    assert [answer.status for answer in request.answers] == [200]


def calls(stack: str) -> set[str]:
    return {line.partition(" (")[0] for line in stack.splitlines()}


def slow(ear: Ear, state: int, path: str) -> dict[str, Any]:
    def is_it(fields: dict[str, Any]) -> bool:
        return fields["slow_record_state"] == state and fields["slow_path_info"] == path

    return ear.wait_for(SLOW, is_it).fields


# The modes in which stacks are reported, and the options of `headway serve` for each.
MODES = {
    "main": (),
    "shared_gil": ("--application-group", "site"),
    "several_shared_gil": ("--application-group", "site", "--interpreters", "2"),
    "preloaded": ("--preload", "--processes", "1"),
}
if sys.version_info >= (3, 12) and not FREE_THREADING:
    MODES["own_gil"] = ("--application-group", "site", "--per-interpreter-gil")


# Of those, the ones where requests run in the main interpreter.
MAIN = ("main", "preloaded")
# In the main interpreter and in another; the other modes are ways between the two.
FIRST = ("main", "own_gil" if "own_gil" in MODES else "shared_gil")


def of(modes: Iterable[str]) -> list[object]:
    later = pytest.mark.slow("a server for each mode")
    return [pytest.param(mode, marks=() if mode in FIRST else later) for mode in modes]


@pytest.mark.parametrize("mode", of(MODES))
@pytest.mark.parametrize("page", ["wait", "compute"])
def test_a_slow_request_is_told_of_while_it_runs_and_when_it_is_over(
    ear: Ear, mode: str, page: str, tmp_path: Path
) -> None:
    over = tmp_path / "over"
    # On a busy machine a request may wait for a processor before the application has it.
    with serve(ear, "--slow-requests", "1.5", *MODES[mode]) as server:
        with asking(server, f"/{page}?{over}") as request:
            try:
                active = slow(ear, ACTIVE, f"/{page}")
            finally:
                over.touch()
        completed = slow(ear, COMPLETED, f"/{page}")
    (answer,) = request.answers
    for told in (active, completed):
        assert {f"{page}_for_a_while", "application"} <= calls(told["slow_stack"])
        assert told["slow_endpoint"] == f"/{page}"
        assert told["slow_interpreter"].startswith("" if mode in MAIN else "site")
        assert told["slow_method"] == "GET"
        assert told["slow_scheme"] == "http"
        assert told["slow_peer_ip"] == "127.0.0.1"
        assert told["slow_protocol"] == "HTTP/1.1"
        assert told["slow_active_at_start"] in (1, 2)
        assert "slow_user_agent" not in told
    assert active["slow_start_stamp"] == completed["slow_start_stamp"]
    assert active["slow_thread_id"] == completed["slow_thread_id"]
    assert 0.2 <= active["slow_duration"] < completed["slow_duration"]
    assert 0.1 < active["slow_application_time"] <= active["slow_duration"]
    seconds = float(answer.body)
    assert seconds <= completed["slow_application_time"] <= completed["slow_duration"]
    assert active["slow_application_time"] < completed["slow_application_time"]
    assert (active["slow_status"], completed["slow_status"]) == (0, 200)
    assert (active["slow_active_at_completion"], completed["slow_active_at_completion"]) == (0, 1)
    if page == "compute":
        assert active["slow_cpu_user_time"] <= completed["slow_cpu_user_time"]
        assert completed["slow_cpu_user_time"] > 0.1
        if not FREE_THREADING:
            assert 0 < active["slow_gil_held_time"] < completed["slow_gil_held_time"]


def test_only_requests_beyond_the_limit_are_told_of(ear: Ear) -> None:
    with serve(ear, "--slow-requests", "0.6") as server:
        assert server.get("/wait?0.01").status == 200
        assert server.get("/wait?0.7").status == 200
        slow(ear, COMPLETED, "/wait")
        ticks = len(ear.heard(TICK))
        ear.wait_for(TICK, lambda _: len(ear.heard(TICK)) > ticks + 1)
    completed = [each for each in ear.heard(SLOW) if each.fields["slow_record_state"] == COMPLETED]
    assert [each.fields["slow_duration"] > 0.6 for each in completed] == [True]


def test_without_the_option_there_are_none(ear: Ear) -> None:
    with serve(ear) as server:
        assert server.get("/wait?0.5").status == 200
        ear.wait_for(TICK, lambda fields: fields["request_count"])
    assert ear.heard(SLOW) == []


def test_what_is_told_of_a_request_is_what_its_client_and_trusted_proxies_said(ear: Ear) -> None:
    options = ("--slow-requests", "0.1", "--capture-user-agent", "--trusted-proxies", "127.0.0.1")
    with serve(ear, *options) as server:
        told_by_proxy = (
            "X-Forwarded-For: 2001:db8::1\r\nX-Forwarded-Proto: https\r\n"
            f"User-Agent: {'depth ' * 500}\r\n"
        )
        assert server.get("/%77ait?0.3", headers=told_by_proxy).status == 200
        told = slow(ear, COMPLETED, "/wait")
        body = b"x" * 100_000
        assert server.request("POST", "/hold?0.2", body).status == 200
        posted = slow(ear, COMPLETED, "/hold")
    assert told["slow_peer_ip"] == "2001:db8::1"
    assert told["slow_scheme"] == "https"
    assert told["slow_user_agent"] == ("depth " * 500)[:255]
    assert told["slow_hostname"] == "test"
    assert not any("0.3" in str(each.fields["slow_path_info"]) for each in ear.heard(SLOW))
    assert (posted["slow_method"], posted["slow_peer_ip"]) == ("POST", "127.0.0.1")
    assert (posted["slow_input_bytes"], posted["slow_output_bytes"]) == (100_000, 100_000)
    assert posted["slow_input_reads"] >= 1
    assert posted["slow_output_writes"] >= 1


@has_gil
@pytest.mark.parametrize("mode", of(each for each in MODES if each != "own_gil"))
def test_a_call_that_keeps_the_gil_is_told_of_with_its_stack(ear: Ear, mode: str) -> None:
    with serve(ear, *MODES[mode]) as server:
        for _ in range(20):
            with asking(server, "/search") as search:
                while search.is_alive():
                    # Waits for the GIL.
                    server.get("/other")
            if any("search_for_long" in row.get("hold_stack", "") for row in ear.rows("holds")):
                break
        # A hold of a second or more is reported before it has ended.
        hold = ear.wait_for_row(
            "holds",
            lambda row: (
                "search_for_long" in row.get("hold_stack", "") and not row.get("hold_present")
            ),
        )
    assert hold["hold_duration"] >= 0.05
    assert 0.02 <= hold["hold_waited"] <= hold["hold_duration"] + 0.02
    assert hold["hold_cpu"] > 0
    assert hold["hold_thread"].startswith("headway-worker-")
    assert hold["hold_endpoint"] == "/search"
    assert hold["hold_stack"].splitlines()[0].count("re") or "match (" in hold["hold_stack"]
    assert hold["hold_gil"]


@has_gil
@pytest.mark.slow("computes for some seconds")
def test_python_that_computes_is_no_long_hold(ear: Ear) -> None:
    """It drops the GIL when it is asked to. A machine that is busy may keep it from doing so for a
    moment; a thread that never does is another matter."""
    with serve(ear) as server:
        with asking(server, "/compute?1.1") as compute:
            while compute.is_alive():
                server.get("/other")
        ear.wait_for(TICK, lambda fields: fields.get("request_time_max", 0) > 1.1)
    assert all(row["hold_duration"] < 1.0 for row in ear.rows("holds"))


@pytest.mark.parametrize("mode", of(MODES))
def test_passes_of_the_garbage_collector_are_counted_and_timed(ear: Ear, mode: str) -> None:
    with serve(ear, *MODES[mode]) as server:
        assert server.get("/collect").status == 200
        name = "" if mode in MAIN else "site"
        full = ear.wait_for_row(
            "gcs",
            lambda row: (
                row["gc_pauses_generation2"] > 0 and row["gc_interpreter"].partition("#")[0] == name
            ),
        )
        event = ear.wait_for(GC_EVENT, lambda fields: fields["gc_event_generation"] == 2)
        snapshot = ear.wait_for(GC_SNAPSHOT, lambda fields: fields["gc_collections2"] > 0)
    assert full["gc_pause"]["count"] >= 1
    assert full["gc_pause"]["sum"] > 0
    # The page makes 5,000 cycles, the last of which lives on in a variable.
    assert sum(row["gc_collected_total"] for row in ear.rows("gcs")) >= 4_999
    assert event.fields["gc_event_duration"] > 0
    assert abs(event.stamp - event.fields["gc_event_start_stamp"]) < 10
    assert snapshot.fields["gc_is_enabled"] == 1
    assert snapshot.fields["gc_threshold0"] > 0


def test_nothing_of_the_garbage_collector_is_bytes(ear: Ear) -> None:
    """mod_wsgi's viewer makes JSON of these fields as they are, and fails at bytes."""
    with serve(ear, *MODES["several_shared_gil"]) as server:
        for _ in range(4):
            assert server.get("/collect").status == 200
        ear.wait_for(GC_EVENT, lambda fields: fields["gc_event_generation"] == 2)
        ear.wait_for(GC_SNAPSHOT, lambda fields: fields["gc_collections2"] > 0)
    for each in [*ear.heard(GC_EVENT), *ear.heard(GC_SNAPSHOT)]:
        assert all(isinstance(value, int | float) for value in each.fields.values()), each


def test_an_interpreter_that_is_replaced_is_followed_by_the_next(ear: Ear) -> None:
    recycled = ("--application-group", "site", "--interpreter-maximum-requests", "2")
    with serve(ear, *recycled) as server:
        for _ in range(8):
            assert server.get("/collect").status == 200
        ear.wait_for(TICK, lambda fields: fields["lifetime_requests"] >= 8)
        ticks = len(ear.heard(TICK))
        ear.wait_for(TICK, lambda _: len(ear.heard(TICK)) > ticks)
    full = sum(row["gc_pauses_generation2"] for row in ear.rows("gcs"))
    assert full >= 8
    assert ear.heard(STARTED)


PROGRAM = """
import os, re, sys, threading, time

def search():
    re.match(r"(1+)+$", "1" * 22 + "x")

def wait_often():
    while not over.is_set():
        time.sleep(0.001)

over = threading.Event()
waiter = threading.Thread(target=wait_often)
waiter.start()
# Until the test has heard of it.
while not os.path.exists(sys.argv[1]):
    search()
    time.sleep(0.05)
over.set()
waiter.join()
"""


@has_gil
def test_a_program_that_keeps_the_gil_is_told_of(ear: Ear, tmp_path: Path) -> None:
    over = tmp_path / "over"
    command = [*HEADWAY, "run", "--telemetry", ear.target, *INTERVAL, "-c", PROGRAM, str(over)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as program:
        try:
            hold = ear.wait_for_row(
                "holds", lambda row: "search" in calls(row.get("hold_stack", ""))
            )
        finally:
            over.touch()
        assert program.wait(60) == 0
    assert hold["hold_thread"] == "MainThread"
    assert hold["hold_gil"] == "main"
    assert "hold_endpoint" not in hold
    assert ear.heard(GC_SNAPSHOT)


EMBEDDED = """
import sys, time, threading
import headway
from headway.server.settings import Telemetry

def app(environ, start_response):
    time.sleep(0.3)
    start_response("200 OK", [("Content-Type", "text/plain")])
    threading.Timer(0.1, stop.set).start()
    return [b"slept\\n"]

stop = threading.Event()
told = Telemetry(sys.argv[1], interval_s=0.1, slow_requests_s=0.2)
def serve():
    headway.serve(app, bind="127.0.0.1:0", threads=1, telemetry=told, stop=stop)
if sys.argv[2] == "main":
    serve()
else:
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_server_in_a_program_tells_of_slow_requests(ear: Ear, thread: str) -> None:
    command = [sys.executable, "-c", EMBEDDED, str(ear.path), thread]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        found = re.search(r"http://127.0.0.1:(\d+)", program.stderr.readline())
        assert found
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/") as response:
            assert response.read() == b"slept\n"
        assert program.wait(60) == 0
    told = slow(ear, COMPLETED, "/")
    assert "app" in calls(told["slow_stack"])
