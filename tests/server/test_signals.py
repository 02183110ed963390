"""Signals to the server, to all of its processes at once, and to one of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from launch import start
from served import APPS, MODE
from started_program import StartedProgram
from supervised import Held, Supervised, is_alive, wait_until_refused

import headway
from headway.server.signals import Signals

TWO = {"processes": 2}


def signal_all(server: Supervised, number: signal.Signals) -> None:
    """As to its process group or cgroup; the supervisor comes last there too."""
    for pid in [*server.workers(), server.process.pid]:
        os.kill(pid, number)


@pytest.mark.parametrize("preload", [False, True])
def test_sigterm_to_all_processes_answers_what_has_begun(tmp_path: Path, preload: bool) -> None:
    with Supervised(tmp_path, TWO | {"preload": preload}) as server:
        workers = server.workers()
        with Held(server, tmp_path) as held:
            signal_all(server, signal.SIGTERM)
            # More to the one that is busy, when the others have ended.
            server.wait_until(lambda: sum(map(is_alive, workers)) == 1)
            for pid in filter(is_alive, workers):
                os.kill(pid, signal.SIGTERM)
            assert held.release().status == 200
        assert server.stop(None) == 0
    assert not any(map(is_alive, workers))


def test_two_at_once_are_one(tmp_path: Path) -> None:
    """`timeout` signals its child, then the process group of both."""
    with Supervised(tmp_path) as server:
        pids = [server.process.pid, *server.workers(), server.process.pid]
        with Held(server, tmp_path) as held:
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            # Where the second one counts it ends all at once.
            wait_until_refused(server)
            assert held.release().status == 200
        assert server.stop(None) == 0


def test_who_was_killed_before_the_signal_did_not_die_of_it(tmp_path: Path) -> None:
    """That it did would be in the exit status."""
    with Supervised(tmp_path, {"deadlock_timeout_s": 0.2, "shutdown_timeout_s": 0.2}) as server:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        server.wait_for(rf"\(pid {worker}\) does not end, and is killed\n")
        # It may have seen that end, or sees it together with the signal.
        os.kill(server.process.pid, signal.SIGSTOP)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        server.wait_until(lambda: not is_alive(worker))
        os.kill(server.process.pid, signal.SIGTERM)
        os.kill(server.process.pid, signal.SIGCONT)
        assert server.stop(None) == 0, server.stderr


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


@pytest.mark.parametrize("preload", [False, True])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_what_is_for_the_supervisor_ends_nobody_else(
    tmp_path: Path, preload: bool, number: signal.Signals
) -> None:
    with (
        Supervised(tmp_path, TWO | {"preload": preload}) as server,
        Held(server, tmp_path) as held,
    ):
        before = server.workers()
        signal_all(server, number)
        server.wait_for("SIGUSR1:\n" if number == signal.SIGUSR1 else "SIGUSR2 has no meaning here")
        assert held.release().status == 200
        assert server.workers() == before


# A handler of the application's own, which lets itself be seen.
HANDLES = """
import signal, threading
came = threading.Event()
signal.signal(signal.SIGUSR2, lambda *_: came.set())

def application(environ, start_response):
    start_response("200 OK", [])
    return [b"came" if came.wait(10) else b"did not come"]
"""


def test_an_application_may_have_a_signal_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "handles.py").write_text(HANDLES)
    mounts = [{"path": "", "application": "handles:application"}]
    with Supervised(tmp_path, {"mounts": mounts, "python_path": [str(tmp_path)]}) as server:
        os.kill(server.workers()[0], signal.SIGUSR2)
        assert server.get("/").body == b"came"


# A program that an application starts: how it has been left signals that its parents ignore.
IGNORES = """
import subprocess

def application(environ, start_response):
    said = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    start_response("200 OK", [])
    return [next(line.split()[1] for line in said.splitlines() if "SigIgn" in line).encode()]
"""


def test_a_supervisor_is_not_stopped_and_leaves_children_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "ignores.py").write_text(IGNORES)
    mounts = [{"path": "", "application": "ignores:application"}]
    with Supervised(tmp_path, {"mounts": mounts, "python_path": [str(tmp_path)]}) as server:
        for number in (signal.SIGTTIN, signal.SIGTTOU):
            server.process.send_signal(number)
        server.reload(2)
        ignored = int(server.get("/").body, 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGTTIN, signal.SIGTTOU))


def test_sigquit_ends_everything_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    left = [tmp_path / name for name in ("pid", "status", "shop")]
    group = TWO | {"binds": [f"unix:{left[2]}"]}
    server = Supervised(tmp_path, group, pid_file=str(left[0]), status_socket=str(left[1]))
    workers = server.workers()
    with Held(server, tmp_path):
        assert server.stop(signal.SIGQUIT, kills=True) == -signal.SIGQUIT
    assert "headway serve: SIGQUIT: all processes are killed\n" in server.stderr
    assert not any(map(is_alive, workers))
    assert not any(each.exists() for each in left)


def test_only_one_part_can_handle_the_signals_of_a_process() -> None:
    with Signals(), pytest.raises(RuntimeError, match="another part of Headway"):
        Signals().begin()
    with Signals((signal.SIGUSR2,)) as signals:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert signals.wait() == [signal.SIGUSR2]


def test_only_that_part_sets_the_wake_up_descriptor() -> None:
    package = Path(headway.__file__).parent
    users = [each for each in package.rglob("*.py") if "set_wakeup_fd(" in each.read_text()]
    assert users == [package / "server" / "signals.py"]


@pytest.mark.slow("starts 24 servers")
@pytest.mark.serial
@pytest.mark.parametrize("command", ["serve", "dashboard", "telemetry"])
def test_a_second_signal_while_the_process_ends_is_not_its_exit_status(
    tmp_path: Path, command: str
) -> None:
    store, site = tmp_path / "store", ("--http", "127.0.0.1:0")
    if command == "telemetry":
        words = ["telemetry", "--listen", f"unix:{tmp_path / 'socket'}", *site, "--store", store]
    else:
        words = ["serve", "pages:hello", "--app-dir", APPS, "--bind", "127.0.0.1:0", *MODE]
    if command == "dashboard":
        words += ["--dashboard", "--dashboard-http", site[1], "--dashboard-store", store]
    ends = set()
    for delay_ms in range(2, 50, 2):
        server = StartedProgram(start(*words, stdout=subprocess.DEVNULL))
        is_one = False
        try:
            server.wait_for("listening on" if command == "serve" else "showing at")
            began_s = time.monotonic()
            server.process.terminate()
            time.sleep(delay_ms / 1000)
            server.process.send_signal(signal.SIGTERM)
            # Of a machine that was busy for longer nothing is known.
            is_one = time.monotonic() - began_s < 0.06
        finally:
            status = server.end(None, kills=not is_one)
        if is_one:
            ends.add(status)
    assert ends == {0}
