"""Processes that a signal has stopped: they neither answer nor end."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from served import TIMEOUT_S, read_to_end
from supervised import Supervised, is_alive


def processes(directory: Path) -> list[dict[str, Any]]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(directory / "status"))
        (group,) = json.loads(read_to_end(connection))["groups"]
    return group["processes"]


def test_a_stopped_process_is_told_of(tmp_path: Path) -> None:
    with Supervised(tmp_path, status_socket=str(tmp_path / "status")) as server:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        server.wait_for(rf"process 1 of group main \(pid {worker}\) is stopped by SIGSTOP\n")
        (told,) = processes(tmp_path)
        assert (told["state"], told["requests"]) == ("stopped", None)
        os.kill(worker, signal.SIGCONT)
        server.wait_for(rf"\(pid {worker}\) goes on\n")
        (told,) = processes(tmp_path)
        assert (told["state"], told["requests"]) == ("serving", 0)
        assert server.workers() == [worker]


def test_a_process_that_stays_stopped_is_replaced(tmp_path: Path) -> None:
    group = {"deadlock_timeout_s": 0.5, "shutdown_timeout_s": 0.5}
    with Supervised(tmp_path, group) as server:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        server.wait_for(r"is replaced \(deadlock_timeout: stopped for 0.5 s\)\n")
        server.wait_until(lambda: not is_alive(worker))
        assert server.get("/pid").status == 200


def test_a_template_that_stays_stopped_makes_room_for_one_that_forks(tmp_path: Path) -> None:
    imported = tmp_path / "imported"
    group = {"preload": True, "deadlock_timeout_s": 0.5}
    with Supervised(tmp_path, group, environment={"IMPORTED": str(imported)}) as server:
        template = int(imported.read_text())
        (worker,) = server.pids()
        os.kill(template, signal.SIGSTOP)
        server.wait_for(rf"template of group main \(pid {template}\) is stopped by SIGSTOP\n")
        os.kill(worker, signal.SIGKILL)
        server.wait_for(rf"\(pid {template}\) is killed \(deadlock_timeout: stopped for 0.5 s\)\n")
        server.wait_until(lambda: not is_alive(worker) and not is_alive(template))
        assert server.get("/preloaded").body.decode() in imported.read_text().split()[1:]
