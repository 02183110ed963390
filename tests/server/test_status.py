"""Who is alive and why the last one died: the status socket, `headway status`, SIGUSR1."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from served import APPS, TIMEOUT_S
from supervised import Supervised


def ask(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headway", "status", f"unix:{path}", *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_the_document_names_processes_and_deaths(tmp_path: Path) -> None:
    path = tmp_path / "status"
    with Supervised(tmp_path, {"processes": 2}, status_socket=str(path)) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        before = json.loads(ask(path, "--json").stdout)
        assert (before["pid"], before["state"], before["generation"]) == (
            server.process.pid,
            "serving",
            1,
        )
        (group,) = before["groups"]
        assert group["name"] == "main"
        assert group["addresses"] == ["{}:{}".format(*server.address)]
        assert [each["number"] for each in group["processes"]] == [1, 2]
        assert [each["pid"] for each in group["processes"]] == server.workers()
        assert {each["state"] for each in group["processes"]} == {"serving"}
        assert group["deaths"] == {"count": 0, "by_reason": {}, "last": None}

        os.kill(server.workers()[0], signal.SIGKILL)
        server.wait_for("was ended by SIGKILL")
        server.reload(2)
        server.wait_until(lambda: len(server.workers()) == 2)
        (group,) = json.loads(ask(path, "--json").stdout)["groups"]
        assert {each["generation"] for each in group["processes"]} == {2}
        assert group["deaths"]["by_reason"] == {"SIGKILL": 1, "graceful_signal": 2}
        assert group["deaths"]["last"]["reason"] == "graceful_signal"

        table = ask(path)
        assert table.returncode == 0
        assert f"pid {server.process.pid}, serving for " in table.stdout
        assert "ended: graceful_signal 2, SIGKILL 1; the last was pid" in table.stdout
        server.process.send_signal(signal.SIGUSR1)
        server.wait_for(r"SIGUSR1:\npid \d+, serving for ")
    assert not path.exists()


def test_a_status_socket_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.write_text("not a socket")
    done = subprocess.run(
        [sys.executable, "-m", "headway", "serve", "pages:hello", "--status-socket", str(path)],
        cwd=APPS,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    said = f"--status-socket unix:{path}: address already in use"
    assert done.stderr == f"headway serve: {said}\n"


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for address, exit_code, said in (
        (f"unix:{tmp_path}/none", 1, "no such file or directory; is the server running?"),
        ("127.0.0.1:80", 2, "it must be unix:PATH"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "headway", "status", address],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == exit_code
        assert done.stderr.count("\n") == 1
        assert said in done.stderr


def test_the_pid_file_is_there_while_the_server_is(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with Supervised(tmp_path, pid_file=str(path)) as server:
        assert path.read_text() == f"{server.process.pid}\n"
    assert not path.exists()


@pytest.mark.parametrize("said", ["", "nonsense\n", "{}\n", "[1]\n", '{"groups": 3}\n', "\udcff"])
def test_what_is_no_headway_server_is_one_line(tmp_path: Path, said: str) -> None:
    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(said.encode(errors="surrogateescape"))

    path = tmp_path / "other"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        done = ask(path)
        thread.join()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"headway status: unix:{path}: what answers there is no headway server\n"
