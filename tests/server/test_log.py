"""The server's log: when and by whom a thing was said, in which file, and what stays out of it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch import environment, python, run_main
from served import APPS, MODE, STAMP, TIMEOUT_S, Served, read_to_end
from supervised import Supervised

TABLE = "path .*requests"
SERVE = [sys.executable, "-m", "headway", "serve"]


def test_each_message_says_when_and_by_whom() -> None:
    with Served("pages:unchecked") as server:
        (worker,) = server.workers()
        assert server.get("/raises").status == 500
    (supervisor,) = re.findall(rf"^{STAMP}headway serve: listening on ", server.stderr, re.M)
    (said,) = re.findall(rf"^{STAMP}headway serve: in GET /raises\nTraceback", server.stderr, re.M)
    assert (int(supervisor), int(said)) == (server.process.pid, worker)


def test_the_zone_is_that_of_the_clock_on_the_wall() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from headway.server.stderr import say; say('it')"],
        env={**os.environ, "TZ": "XYZ-5:30"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    ).stderr
    assert re.fullmatch(rf"{STAMP}headway serve: it\n", told)
    assert "+05:30 [" in told


@pytest.mark.parametrize("is_journal", [True, False])
def test_the_journal_keeps_time_and_process_itself(is_journal: bool) -> None:
    reader, writer = os.pipe()
    found = os.fstat(writer)
    stream = f"{found.st_dev}:{found.st_ino if is_journal else found.st_ino + 1}"
    with os.fdopen(reader) as log:
        subprocess.run(
            [sys.executable, "-c", "from headway.server.stderr import say; say('it')"],
            env={**os.environ, "JOURNAL_STREAM": stream},
            stderr=writer,
            check=True,
            timeout=TIMEOUT_S,
        )
        os.close(writer)
        assert bool(re.match(STAMP, said := log.read())) != is_journal
    assert said.endswith("headway serve: it\n")


def test_a_terminal_shows_what_is_said_as_it_is_and_the_table_of_each_process() -> None:
    ours, theirs = pty.openpty()
    app = ["pages:unchecked", "--app-dir", str(APPS), "--bind", "127.0.0.1:0", *MODE]
    process = subprocess.Popen([*SERVE, *app, "--processes", "2"], stderr=theirs)
    os.close(theirs)
    said = read_until(ours, "listening on ")
    process.send_signal(signal.SIGTERM)
    said += read_until(ours, None)
    assert process.wait(TIMEOUT_S) == 0
    os.close(ours)
    assert said.startswith("headway serve: listening on http://127.0.0.1:")
    assert len(re.findall(r"^Process [12] of group main", said, re.M)) == 2


def read_until(fd: int, words: str | None) -> str:
    """The text up to these words, or to the end."""
    said = ""
    while words is None or words not in said:
        try:
            piece = os.read(fd, 4096)
        except OSError:
            # So a terminal says that nobody has it any more.
            break
        if not piece:
            break
        said += piece.decode().replace("\r\n", "\n")
    return said


def test_only_the_end_has_a_table_and_only_one(tmp_path: Path) -> None:
    with Supervised(tmp_path, {"maximum_requests": 10}) as server:
        server.get("/pid")
        server.reload(2)
        # However many of them the former generation takes, which does so until it hears of that.
        while "is replaced (maximum_requests" not in server.stderr:
            assert server.get("/pid").status == 200
        # The replaced process has ended.
        server.wait_until(lambda: len(server.workers()) == 1)
        server.get("/pid")
        assert not re.search(TABLE, server.stderr)
    assert len(re.findall(TABLE, server.stderr)) == 1


@pytest.mark.parametrize("table", [False, True])
def test_several_processes_leave_no_tables_in_a_log_unasked(tmp_path: Path, table: bool) -> None:
    with Supervised(tmp_path, {"processes": 2}, final_table=table) as server:
        server.wait_until(lambda: server.pids() == set(server.workers()))
    assert len(re.findall(TABLE, server.stderr)) == (2 if table else 0)


def test_a_file_has_the_log_and_sighup_opens_it_anew(tmp_path: Path) -> None:
    log, former, path = tmp_path / "log", tmp_path / "log.1", tmp_path / "socket"
    log.write_text("what was there\n")
    process = serve("pages:unchecked", "--error-log", log, "--bind", f"unix:{path}")
    try:
        wait_for(log, "listening on")
        assert get(path, "/log").startswith(b"HTTP/1.1 200 ")
        (worker,) = workers_of(process)
        log.rename(former)
        process.send_signal(signal.SIGHUP)
        wait_for(log, "generation 2 serves, 1 retires")
        # Until it hears of that, a process of the former generation takes requests too.
        while worker in workers_of(process):
            time.sleep(0.02)
        assert get(path, "/raises").startswith(b"HTTP/1.1 500 ")
    finally:
        process.terminate()
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, told) == (0, "")
    assert re.fullmatch(
        rf"what was there\n{STAMP}headway serve: listening on .*\n(.*warning.*\n)?"
        r"a line for wsgi.errors\n",
        former.read_text(),
    )
    assert re.search(rf"^{STAMP}headway serve: in GET /raises\nTraceback", log.read_text(), re.M)
    assert re.search(TABLE, log.read_text())


def test_a_file_has_the_log_of_who_starts_without_stderr(tmp_path: Path) -> None:
    log, path = tmp_path / "log", tmp_path / "socket"
    options = ["--error-log", log, "--bind", f"unix:{path}"]
    process = serve("pages:unchecked", *options, preexec_fn=lambda: os.closerange(0, 3))
    try:
        wait_for(log, "listening on")
        assert get(path, "/raises").startswith(b"HTTP/1.1 500 ")
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert "in GET /raises\nTraceback" in log.read_text()


def test_what_prevents_the_start_is_said_in_the_file_and_to_who_starts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = serve("no_such_module:app", "--error-log", log, "--bind", "127.0.0.1:0")
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert told.startswith("headway serve: APP is 'no_such_module:app': there is no module ")
    assert told.count("\n") == 1
    assert re.search(f"{STAMP}{re.escape(told)}", log.read_text())


def test_a_file_that_cannot_be_opened_anew_keeps_who_serves(tmp_path: Path) -> None:
    folder, path = tmp_path / "folder", tmp_path / "socket"
    folder.mkdir()
    process = serve("pages:unchecked", "--error-log", folder / "log", "--bind", f"unix:{path}")
    try:
        wait_for(folder / "log", "listening on")
        former = folder.rename(tmp_path / "former")
        process.send_signal(signal.SIGHUP)
        wait_for(former / "log", "no such file or directory; generation 1 goes on serving")
        assert get(path, "/hello").startswith(b"HTTP/1.1 200 ")
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0


def test_a_file_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    options = ("--app-dir", APPS, "--error-log", tmp_path, "--bind", "127.0.0.1:0")
    done = run_main("serve", "pages:hello", *options)
    assert (done.returncode, done.stderr) == (
        2,
        f"headway serve: --error-log: found {tmp_path}; it must be a file that this user can write "
        "to\n",
    )


def serve(app: str, *options: object, **how: Any) -> subprocess.Popen[str]:
    command = [*SERVE, app, "--app-dir", str(APPS), *MODE, *map(str, options)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how)


def workers_of(process: subprocess.Popen[str]) -> list[str]:
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def wait_for(file: Path, words: str) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not file.exists() or words not in file.read_text():
        assert time.monotonic() < end, words
        time.sleep(0.02)


def wait_until_it_listens(path: Path) -> None:
    """The socket is there before that."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                return connection.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < end
        time.sleep(0.02)


def get(path: Path, target: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(
            f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
        )
        return read_to_end(connection)


def test_a_log_that_nobody_reads_does_not_hold_up_the_supervisor(tmp_path: Path) -> None:
    """As where stderr is the pipe of a pager."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    status = tmp_path / "status"
    options = ["--app-dir", APPS, "--bind", "127.0.0.1:0", "--status-socket", status, *MODE]
    process = subprocess.Popen([*SERVE, "pages:hello", *options], stderr=writer)
    os.close(writer)
    try:
        for generation in (1, 2):
            wait_for_generation(status, generation)
            process.send_signal(signal.SIGHUP)
        wait_for_generation(status, 3)
        with os.fdopen(reader) as log:
            assert len(log.read(filled)) == filled
            process.send_signal(signal.SIGUSR2)
            said = log.readline()
            assert re.fullmatch(rf"{STAMP}headway: \d messages were lost, .*\n", said), said
            assert "SIGUSR2 has no meaning here" in log.readline()
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()


def closed_pipe() -> tuple[int, ...]:
    reader, writer = os.pipe()
    os.close(reader)
    return (writer,)


def full_pipe() -> tuple[int, ...]:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    return writer, reader


def closed_terminal() -> tuple[int, ...]:
    ours, theirs = pty.openpty()
    os.close(ours)
    return (theirs,)


def full_device() -> tuple[int, ...]:
    return (os.open("/dev/full", os.O_WRONLY),)


WRITES = """
import sys

def application(environ, start_response):
    try:
        sys.stderr.write("part of a line")
    except OSError:
        pass
    start_response("204 No Content", [])
    return []
"""


@pytest.mark.parametrize("opened", [closed_pipe, full_pipe, closed_terminal, full_device])
def test_a_log_that_nobody_reads_is_no_crash_at_the_end(
    tmp_path: Path, opened: Callable[[], tuple[int, ...]]
) -> None:
    (tmp_path / "writes.py").write_text(WRITES)
    path = tmp_path / "socket"
    options = ["--app-dir", tmp_path, "--bind", f"unix:{path}", *MODE]
    fds = opened()
    process = subprocess.Popen(
        # With the buffers that Python has by default.
        [*SERVE, "writes:application", *map(str, options)],
        env=environment(),
        stderr=fds[0],
    )
    try:
        wait_until_it_listens(path)
        assert get(path, "/").startswith(b"HTTP/1.1 204 ")
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize("length", [10, 77, 200, 1000, 5000])
def test_a_terminal_with_room_for_a_part_does_not_hold_up_a_message(length: int) -> None:
    """poll(2) says that it has room, and a write that waits would wait for the rest."""
    program = (
        "import os, pty, sys\n"
        "from headway.server.stderr import say\n"
        "ours, theirs = pty.openpty()\n"
        "sys.stderr = open(theirs, 'w')\n"
        f"for _ in range(500): say('x' * {length})\n"
        "print('said')\n"
    )
    assert python("-c", program, timeout=TIMEOUT_S).stdout == "said\n"


def wait_for_generation(status: Path, number: int) -> None:
    end = time.monotonic() + TIMEOUT_S
    while True:
        done = run_main("status", f"unix:{status}")
        if "serving for" in done.stdout and f", generation {number}\n" in done.stdout:
            return
        assert time.monotonic() < end, done
        time.sleep(0.05)
