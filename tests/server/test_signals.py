"""Signals to the server, to all of its processes at once, and to one of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from served import APPS, read_response
from supervised import Supervised, is_alive

TWO = {"processes": 2}


def signal_all(server: Supervised, number: signal.Signals) -> None:
    """As to its process group or cgroup; the supervisor comes last there too."""
    for pid in [*server.workers(), server.process.pid]:
        os.kill(pid, number)


@pytest.mark.parametrize("preload", [False, True])
def test_sigterm_to_all_processes_answers_what_has_begun(tmp_path: Path, preload: bool) -> None:
    with Supervised(tmp_path, TWO | {"preload": preload}) as server, server.connect() as busy:
        workers = server.workers()
        busy.sendall(b"GET /slow?1 HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
        signal_all(server, signal.SIGTERM)
        # More to who is busy still; the others may have ended.
        time.sleep(0.2)
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGTERM)
        assert read_response(busy).status == 200
        assert server.stop(None) == 0
    assert not any(map(is_alive, workers))


def test_two_at_once_are_one(tmp_path: Path) -> None:
    """`timeout` signals its child, then the process group of both."""
    with Supervised(tmp_path) as server, server.connect() as busy:
        busy.sendall(b"GET /slow?0.5 HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
        server.process.terminate()
        signal_all(server, signal.SIGTERM)
        assert read_response(busy).status == 200
        assert server.stop(None) == 0


# A child of the application's, ended as multiprocessing does.
FORKS = """
import os, signal, time

def application(environ, start_response):
    child = os.fork()
    if child == 0:
        time.sleep(10)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    start_response("200 OK", [])
    return [str(answer).encode()]
"""


def test_sigterm_ends_what_the_application_forks_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(FORKS)
    mounts = [
        {"path": "", "application": "processes:application"},
        {"path": "/forks", "application": "forks:application"},
    ]
    with Supervised(tmp_path, {"mounts": mounts, "python_path": [str(tmp_path), str(APPS)]}) as it:
        before = it.workers()
        for _ in range(20):
            assert int(it.get("/forks").body) == -signal.SIGTERM
        assert it.get("/pid").status == 200
        assert it.workers() == before
