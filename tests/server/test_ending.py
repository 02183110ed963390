"""How the server and its processes end, and what becomes of requests that are under way."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from served import APPS, TIMEOUT_S, read_response
from supervised import Held, Load, Supervised, is_alive, wait_until_refused

pytestmark = pytest.mark.free_threading

TWO = {"processes": 2}


@pytest.mark.parametrize("processes", [1, 2])
def test_every_request_sent_before_sigterm_is_answered(tmp_path: Path, processes: int) -> None:
    with Supervised(tmp_path, {"processes": processes}) as server, ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(24)]
        for connection in connections:
            connection.sendall(b"GET /slow?0.05 HTTP/1.1\r\nHost: a\r\n\r\n")
        server.process.terminate()
        for connection in connections:
            response = read_response(connection)
            assert response.status == 200
            # One that was answered before the signal came is closed as idle.
            assert response.headers.get("connection", "close") == "close"
            assert connection.recv(1) == b""
        assert server.stop(None) == 0


@pytest.mark.parametrize("keep_alive", [True, False])
def test_sigterm_under_load_loses_nothing_that_was_sent(tmp_path: Path, keep_alive: bool) -> None:
    with Supervised(tmp_path, TWO) as server:
        with Load(server, clients=8, keep_alive=keep_alive) as load:
            load.is_late.set()
            server.process.terminate()
            assert server.process.wait(TIMEOUT_S) == 0
        assert all(kind.endswith("(late)") for kind in load.failed()), load.failed()


def test_a_request_whose_head_had_begun_is_answered_after_sigterm(tmp_path: Path) -> None:
    with Supervised(tmp_path) as server, server.connect() as connection:
        # The first request has the worker accept the connection.
        connection.sendall(b"GET /pid HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(connection).status == 200
        connection.sendall(b"GET /pid HTTP/1.1\r\nHo")
        server.process.terminate()
        wait_until_refused(server)
        connection.sendall(b"st: a\r\n\r\n")
        assert read_response(connection).headers["connection"] == "close"
        assert server.stop(None) == 0


def test_a_second_signal_leaves_no_process(tmp_path: Path) -> None:
    left = [tmp_path / "pid", tmp_path / "status"]
    server = Supervised(tmp_path, TWO, pid_file=str(left[0]), status_socket=str(left[1]))
    workers = server.workers()
    assert all(each.exists() for each in left)
    with Held(server, tmp_path):
        server.process.terminate()
        server.wait_until(lambda: len(server.workers()) == 1)
        # Signals within ONE_SIGNAL_S count as one, as `timeout` sends two.
        time.sleep(0.2)
        assert server.stop(signal.SIGTERM, kills=True) == -signal.SIGTERM
    assert not any(map(is_alive, workers))
    assert not any(each.exists() for each in left)


# Sent to the whole server by its terminal, while the application is imported.
INTERRUPTED = """
import os, signal
for number in (signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), number)
from processes import application
"""


@pytest.mark.parametrize("preload", [False, True])
def test_signals_of_the_terminal_are_for_the_supervisor(tmp_path: Path, preload: bool) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    group = {
        "mounts": [{"path": "", "application": "interrupted:application"}],
        "python_path": [str(tmp_path), str(APPS)],
        "preload": preload,
    }
    with Supervised(tmp_path, group) as server:
        before = server.workers()
        for pid in before:
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGHUP)
        assert server.get("/pid").status == 200
        assert server.workers() == before
    assert "Traceback" not in server.stderr


def test_an_application_that_never_returns_is_cut_off(tmp_path: Path) -> None:
    server = Supervised(tmp_path, {"graceful_timeout_s": 0.1})
    with Held(server, tmp_path):
        assert server.stop() == 1
    assert "1 thread was still in the application after 0.1 s" in server.stderr


# Each request to it goes on until the server cuts it off, and leaves a file when it ends.
UNENDING = """
import atexit, pathlib
folder = pathlib.Path(__file__).parent
atexit.register((folder / "exited").touch)

def application(environ, start_response):
    (folder / "begun").touch()
    try:
        start_response("200 OK", [])
        environ["wsgi.input"].read()
        while True:
            yield bytes(int(environ["QUERY_STRING"]))
    finally:
        (folder / "closed").touch()
"""


@pytest.mark.parametrize(
    ("request_", "is_read"),
    [
        pytest.param(b"GET /?10 HTTP/1.1\r\nHost: a\r\n\r\n", True, id="stream"),
        pytest.param(b"GET /?100000 HTTP/1.1\r\nHost: a\r\n\r\n", False, id="full-socket"),
        pytest.param(
            # More than what is read before the application is called.
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(200_000),
            True,
            id="upload",
        ),
    ],
)
def test_a_request_that_is_cut_off_is_closed(
    tmp_path: Path, request_: bytes, is_read: bool
) -> None:
    (tmp_path / "unending.py").write_text(UNENDING)
    group = {
        "mounts": [{"path": "", "application": "unending:application"}],
        "python_path": [str(tmp_path)],
        "graceful_timeout_s": 0.2,
    }
    server = Supervised(tmp_path, group)
    with server.connect() as connection:
        connection.sendall(request_)
        server.wait_until((tmp_path / "begun").exists)
        server.process.terminate()
        if is_read:
            received = b""
            with suppress(ConnectionResetError):
                while data := connection.recv(1 << 20):
                    received = (received + data)[-5:]
            # Cut off, and not ended.
            assert received != b"0\r\n\r\n"
        assert server.stop(None) == 1
    assert "1 thread was still in the application after 0.2 s" in server.stderr
    assert "Traceback" not in server.stderr
    assert (tmp_path / "closed").exists()
    assert (tmp_path / "exited").exists()


@pytest.mark.slow("waits for two shutdown timeouts")
def test_without_a_graceful_timeout_requests_have_the_shutdown_timeout(tmp_path: Path) -> None:
    group = {"graceful_timeout_s": 0, "shutdown_timeout_s": 1.0, "threads": 2}
    server = Supervised(tmp_path, group)
    said = r"1 thread was still in the application after 1 s \(--shutdown-timeout\) and cut off\n"
    with ExitStack() as stack:
        for name in ("never", "soon", "late"):
            (tmp_path / name).mkdir()
        never = stack.enter_context(Held(server, tmp_path / "never"))
        soon = stack.enter_context(Held(server, tmp_path / "soon"))
        server.reload(2)
        assert soon.release().status == 200
        server.wait_for(said)
        assert never.connection.recv(1) == b""
        stack.enter_context(Held(server, tmp_path / "late"))
        assert server.stop() == 1
    assert len(re.findall(said, server.stderr)) == 2


def test_ctrl_c_in_a_terminal_reaches_everyone_and_ends_cleanly(tmp_path: Path) -> None:
    server = Supervised(tmp_path, TWO)
    with Held(server, tmp_path) as held:
        for pid in [*server.workers(), server.process.pid]:
            os.kill(pid, signal.SIGINT)
        wait_until_refused(server)
        assert held.release().status == 200
    assert server.stop(None) == 0
    assert "Traceback" not in server.stderr


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    server = Supervised(tmp_path, TWO)
    workers = server.workers()
    with Held(server, tmp_path) as held:
        server.process.kill()
        server.wait_until(lambda: sum(map(is_alive, workers)) == 1)
        assert held.release().status == 200, "what was begun is ended"
    assert server.stop(None) == -signal.SIGKILL
    server.wait_until(lambda: not any(map(is_alive, workers)))


HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
LINGERS = """
import threading
from stuck import application
threading.Thread(target=threading.Event().wait).start()
"""


@pytest.mark.parametrize(
    ("application", "target", "preload"),
    [
        pytest.param(
            "stuck",
            "/wedge",
            preload,
            marks=[
                pytest.mark.skipif(not HAS_GIL, reason="no GIL, nothing to hold"),
                pytest.mark.slow("waits for all the time that a supervisor would give"),
            ],
        )
        for preload in (False, True)
    ]
    + [("lingers", "/sleep", False)],
)
def test_a_worker_that_cannot_end_does_not_outlive_its_supervisor(
    tmp_path: Path, application: str, target: str, preload: bool
) -> None:
    (tmp_path / "lingers.py").write_text(LINGERS)
    group = {
        "mounts": [{"path": "", "application": f"{application}:application"}],
        "python_path": [str(APPS), str(tmp_path)],
        "preload": preload,
        "graceful_timeout_s": 0.2,
        "shutdown_timeout_s": 0.2,
    }
    server = Supervised(tmp_path, group)
    said = r"did not end within 2\.4 s after its supervisor had gone, and is cut off\n"
    workers = server.workers()
    try:
        with server.connect() as busy:
            busy.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            server.wait_for("wedged|asleep")
            server.process.kill()
            server.wait_for(said)
        server.wait_until(lambda: not any(map(is_alive, workers)))
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)
        assert server.stop(None) == -signal.SIGKILL
    assert len(re.findall(said, server.stderr)) == 1
