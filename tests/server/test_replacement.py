"""Each limit that a worker watches has the supervisor replace it, and say why: in the log, and in
what `headway status` tells."""

from __future__ import annotations

import json
import re
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from served import APPS, TIMEOUT_S, read_to_end
from supervised import Held, Load, Supervised, is_alive

pytestmark = pytest.mark.free_threading

HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
MOUNTS = [
    {"path": "", "application": "processes:application"},
    {"path": "/stuck", "application": "stuck:application"},
]


def supervised(directory: Path, **limits: Any) -> Supervised:
    group = {"mounts": MOUNTS, "python_path": [str(APPS)], "threads": 2, **limits}
    return Supervised(directory, group, status_socket=str(directory / "status"))


def deaths(directory: Path) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(directory / "status"))
        (group,) = json.loads(read_to_end(connection))["groups"]
    return group["deaths"]


def wait_for_successor(server: Supervised, directory: Path, reason: str) -> None:
    """Waits until the first process has ended for `reason` and the server has another one."""
    (first,) = map(int, re.findall(rf"\(pid (\d+)\) is replaced \({reason}: ", server.stderr)[:1])
    server.wait_until(lambda: not is_alive(first) and deaths(directory)["count"])
    assert first not in server.pids()
    assert set(deaths(directory)["by_reason"]) == {reason}
    assert deaths(directory)["last"]["reason"] == reason


def ask(server: Supervised, target: str) -> socket.socket:
    connection = server.connect()
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection


def test_a_process_is_replaced_after_so_many_requests(tmp_path: Path) -> None:
    with supervised(tmp_path, maximum_requests=50) as server:
        with Load(server, keep_alive=False) as load:
            server.wait_for(r"is replaced \(maximum_requests: 50 requests have ended\)")
            wait_for_successor(server, tmp_path, "maximum_requests")
        assert not load.failed()


def test_a_process_that_nobody_asks_is_replaced_once(tmp_path: Path) -> None:
    with supervised(tmp_path, inactivity_timeout_s=0.3) as server:
        first = int(server.get("/pid").body)
        server.wait_for(rf"\(pid {first}\) is replaced \(inactivity_timeout: ")
        server.wait_until(lambda: not is_alive(first))
        # Its successor was not asked anything yet, and would be no fresher started anew.
        assert deaths(tmp_path)["by_reason"] == {"inactivity_timeout": 1}
        assert int(server.get("/pid").body) != first


def test_a_process_with_a_request_that_runs_too_long_is_replaced_and_answers_it(
    tmp_path: Path,
) -> None:
    with supervised(tmp_path, request_timeout_s=0.2) as server:
        (first,) = server.workers()
        with Held(server, tmp_path) as held:
            server.wait_for(rf"\(pid {first}\) is replaced \(request_timeout: .*GET /held\?")
            assert re.search(r"\nheld \(.*processes\.py:\d+\)\n", server.stderr)
            server.wait_until(lambda: first not in server.pids())
            assert int(held.release().body) == first
        wait_for_successor(server, tmp_path, "request_timeout")


@pytest.mark.skipif(not HAS_GIL, reason="no GIL, nothing to hold")
def test_a_process_whose_gil_is_held_is_replaced_and_killed(tmp_path: Path) -> None:
    server = supervised(tmp_path, deadlock_timeout_s=0.3, shutdown_timeout_s=0.3)
    (first,) = server.workers()
    try:
        with ExitStack() as stack:
            stack.enter_context(ask(server, "/stuck/wedge"))

            def is_replaced() -> bool:
                # Nobody is kept from the GIL before a request waits for it.
                stack.enter_context(ask(server, "/pid"))
                named = rf"\(pid {first}\) is replaced \(deadlock_timeout: thread headway-worker-"
                return bool(re.search(named, server.stderr))

            server.wait_until(is_replaced)
            assert re.search(r"\nwedge \(.*stuck\.py:\d+\)\n", server.stderr)
            server.wait_for(rf"\(pid {first}\) does not end, and is killed")
            wait_for_successor(server, tmp_path, "deadlock_timeout")
    finally:
        assert server.stop() == 0, "that it was killed is long over"
