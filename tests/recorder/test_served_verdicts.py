"""Verdicts on servers that are really in such a situation, made by really asking them.

Each server is kept at it until the recorder says so; what must never be said is looked at all the
while. How fast anything is does not matter.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from recorded import Recorded
from served import FREE_THREADING, Served

PATIENCE_S = 40.0
WINDOW_S = 3
# Between two questions.
PAUSE_S = 0.1
GIL_VERDICTS = {"gil-bound", "convoy", "long-hold"}
without_gil = pytest.mark.skipif(not FREE_THREADING, reason="there is a GIL")
with_gil = pytest.mark.skipif(FREE_THREADING, reason="there is no GIL")


@contextmanager
def load(address: tuple[str, int], targets: dict[str, int]) -> Iterator[None]:
    """Runs clients for each target; each sends the next request as soon as it has a response."""
    ended = threading.Event()

    def ask(target: str) -> None:
        connection = http.client.HTTPConnection(*address, timeout=30)
        while not ended.is_set():
            connection.request("GET", target)
            connection.getresponse().read()
        connection.close()

    clients = [
        threading.Thread(target=ask, args=(target,))
        for target, number in targets.items()
        for _ in range(number)
    ]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ended.set()
        for client in clients:
            client.join()


@contextmanager
def recorded(folder: Path, targets: dict[str, int], *options: str) -> Iterator[Recorded]:
    """The recorder of a server under load."""
    recorder = Recorded(folder)
    try:
        telemetry = ("--telemetry", f"unix:{recorder.socket}", "--telemetry-interval", "0.5")
        with Served("depth:application", *telemetry, *options) as server:
            assert server.address is not None
            with load(server.address, targets):
                yield recorder
    finally:
        recorder.stop()


@contextmanager
def situation(
    folder: Path, targets: dict[str, int], *options: str
) -> Iterator[Callable[[], dict[str, Any]]]:
    """A server under load; yields a function that asks for the verdict of the last seconds."""
    with recorded(folder, targets, *options) as recorder:
        yield lambda: recorder.ask(f"summary?from=-{WINDOW_S}")["verdict"]


def wait_for(
    judge: Callable[[], dict[str, Any]], name: str, *never: str, text: str = ""
) -> dict[str, Any]:
    """The first verdict of this name with this text."""
    deadline = time.monotonic() + PATIENCE_S
    seen = []
    while time.monotonic() < deadline:
        verdict = judge()
        seen.append(verdict["name"])
        assert verdict["name"] not in never, verdict
        if verdict["name"] == "cpu-limited":
            pytest.skip("the machine's cgroup stops the server")
        if verdict["name"] == name and text in verdict["text"]:
            return verdict
        time.sleep(PAUSE_S)
    raise AssertionError(f"{name} was not said, but {set(seen)}; at last: {verdict}")


def watch(judge: Callable[[], dict[str, Any]], seconds: float) -> None:
    """Until a verdict is on that many seconds with requests; none is one about the GIL."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        verdict = judge()
        assert verdict["name"] not in GIL_VERDICTS, verdict
        if verdict["sample"]["requests"] > 0 and verdict["sample"]["seconds"] >= seconds:
            break
        assert time.monotonic() < deadline, verdict
        time.sleep(PAUSE_S)


def test_a_server_without_requests_is_idle(tmp_path: Path) -> None:
    with situation(tmp_path, {}, "--threads", "2") as judge:
        wait_for(judge, "idle", *GIL_VERDICTS)


@pytest.mark.slow("a server under load for some seconds")
def test_requests_that_wait_are_io_bound_and_never_anything_about_the_gil(tmp_path: Path) -> None:
    with situation(tmp_path, {"/wait?0.05": 3}, "--threads", "5") as judge:
        found = wait_for(judge, "io-bound", *GIL_VERDICTS)
        watch(judge, 2.0)
    assert found["sample"]["requests"] >= 30


@pytest.mark.slow("a server under load for some seconds")
def test_more_requests_than_threads_saturate_a_server(tmp_path: Path) -> None:
    with situation(tmp_path, {"/wait?0.05": 8}, "--threads", "2") as judge:
        found = wait_for(judge, "saturated", *GIL_VERDICTS)
    assert any("--threads" in each["try"] for each in found["advice"])


@with_gil
def test_threads_that_compute_are_gil_bound(tmp_path: Path) -> None:
    options = ("--threads", "4", "--policy", "interval")
    with situation(tmp_path, {"/compute?0.1": 4}, *options) as judge:
        found = wait_for(judge, "gil-bound", "io-bound", "idle")
    use, waiting = found["evidence"][:2]
    assert 0.8 <= use["value"] <= 1.01
    # Of four threads one holds the GIL.
    assert waiting["value"] <= 4


@with_gil
@pytest.mark.slow("keeps two servers under load for some seconds")
def test_short_requests_beside_pages_that_compute_are_a_convoy_unless_a_policy_helps(
    tmp_path: Path,
) -> None:
    targets = {"/compute?0.2": 2, "/": 2}
    options = ("--threads", "4", "--switch-interval", "5ms")
    with situation(tmp_path, targets, *options, "--policy", "interval") as judge:
        found = wait_for(judge, "convoy", "io-bound", "idle")
    assert "--policy priority" in [each["try"] for each in found["advice"]]
    with situation(tmp_path, targets, *options, "--policy", "priority") as judge:
        # Where a thread finds no core when its turn comes there may be one for a while.
        deadline = time.monotonic() + 10 * WINDOW_S
        verdict = judge()
        while verdict["sample"]["seconds"] < WINDOW_S - 1 or verdict["name"] == "convoy":
            assert time.monotonic() < deadline, verdict
            time.sleep(PAUSE_S)
            verdict = judge()


@contextmanager
def busy_cores(each: int) -> Iterator[None]:
    """Other programs that compute, so many for each core."""
    program = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(program) for _ in range(each * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@with_gil
@pytest.mark.serial
@pytest.mark.slow("a server under load for some seconds")
@pytest.mark.parametrize("others", [0, 2], ids=["", "busy cores"])
def test_a_call_that_keeps_the_gil_is_named_with_its_endpoint_and_where_it_is(
    tmp_path: Path, others: int
) -> None:
    targets = {"/hold?0.2": 1, "/": 2}
    with busy_cores(others), situation(tmp_path, targets, "--threads", "4") as judge:
        # The stack is read while the call holds the GIL. On a busy machine the first call may have
        # returned by then.
        found = wait_for(judge, "long-hold", "io-bound", "idle", text="depth.py:")
    assert "/hold" in found["text"]
    assert "in hold_for_a_while" in found["text"]


@pytest.mark.serial
@pytest.mark.slow("keeps servers under load for some seconds")
@pytest.mark.parametrize(
    ("targets", "options", "cores", "verdict"),
    [
        ({"/wait?0.05": 3}, ("--threads", "5"), None, "io-bound"),
        ({"/wait?0.05": 8}, ("--threads", "2"), None, "saturated"),
        ({"/compute?0.05": 4}, ("--processes", "2", "--threads", "2"), 1, "cpu-bound"),
        pytest.param(
            *({"/lock?0.05": 4}, ("--threads", "4"), None, "lock-contention"),
            marks=[without_gil, pytest.mark.free_threading],
        ),
    ],
    ids=["I/O-bound", "too few threads", "too few cores", "one lock"],
)
def test_each_view_says_the_same_of_a_service(
    tmp_path: Path,
    targets: dict[str, int],
    options: tuple[str, ...],
    cores: int | None,
    verdict: str,
) -> None:
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(usable)[:cores])
    try:
        with recorded(tmp_path, targets, *options) as recorder:
            # The server alone has these cores: the clients and the recorder would take from it.
            for process in (os.getpid(), recorder.process.pid):
                for thread in os.listdir(f"/proc/{process}/task"):
                    os.sched_setaffinity(int(thread), usable)
            deadline = time.monotonic() + PATIENCE_S
            same = dict.fromkeys(("API", "metrics", "comparison", "top"), verdict)
            while (shown := recorder.verdicts(WINDOW_S)) != same:
                assert time.monotonic() < deadline, shown
                time.sleep(PAUSE_S)
    finally:
        os.sched_setaffinity(0, usable)


@without_gil
@pytest.mark.free_threading
@pytest.mark.parametrize("page", ["/compute?0.05", "/wait?0.02", "/collect"])
def test_without_a_gil_nothing_is_said_of_one(tmp_path: Path, page: str) -> None:
    with situation(tmp_path, {page: 4}, "--threads", "4") as judge:
        # At least two ticks, of which the first may have begun before the requests.
        watch(judge, 1.4)
