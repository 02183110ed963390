"""The server that scripts/soak_server.py has under load: how it is started, asked, struck, and
ended; and who may fail for it.

Knows nothing of what clients do. Used by the main thread, except `Casualties`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak_configuration import GROUPS, Configuration
from soak_conversation import Address, Conversation, Exhausted, Missing, Stuck, Wrong
from soak_processes import Connection, connections, is_stopped, unix_connections
from soak_site import FILE_BYTES, FILE_TOKEN, text_of

# For anything that the server is to do, on a machine that has much else to do.
PATIENCE_S = 60.0
DESCRIPTORS = 256
# The GNU C library keeps freed blocks of megabytes, for each thread as many as it ever had at once.
# With this they go back to the kernel, so that what stays is in use.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072"}
# How long a connection may have waited to be accepted.
QUEUED_S = 1.0

# Names of deaths in `headway status`: what the server itself decides.
PLANNED = {
    *("graceful_signal", "shutdown_signal", "generation_abandoned"),
    *("maximum_requests", "restart_interval", "request_timeout"),
}


class SoakFailure(Exception):
    """A failure of the server; the text is one line."""


class Casualties:
    """The actions on processes, which decide the connections that may fail, and how."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # When, pid, ports, and for how long before nobody knows whose a connection was.
        self._deaths: list[tuple[float, int, frozenset[int], float]] = []
        # Pid, and from when to when it had no descriptors.
        self._hoards: list[tuple[int, float, float]] = []

    def add_death(self, pid: int, ports: set[int], blind_s: float = 0.0) -> None:
        """`pid` ended with connections from these ports. What came within the last `blind_s`
        seconds and had no answer yet may have been its, too; and so may any UNIX socket."""
        with self._lock:
            self._deaths.append((time.monotonic(), pid, frozenset(ports), blind_s))

    def add_hoard(self, pid: int, since_s: float) -> None:
        with self._lock:
            self._hoards.append((pid, since_s, time.monotonic()))

    def excuse(self, problem: Exception, conversation: Conversation) -> bool:
        if isinstance(problem, Exhausted):
            return self._hoarded(conversation)
        is_missing = isinstance(problem, Missing) and not isinstance(problem, Stuck)
        return is_missing and (self._died(conversation) or self._was_evicted(conversation))

    def _died(self, conversation: Conversation) -> bool:
        with self._lock:
            return any(
                conversation.began_s < died_s
                and (
                    conversation.port in ports
                    or conversation.pid == pid
                    or (
                        conversation.pid is None
                        and (conversation.port == 0 or conversation.began_s > died_s - blind_s)
                    )
                )
                for died_s, pid, ports, blind_s in self._deaths
            )

    def _was_evicted(self, conversation: Conversation) -> bool:
        """Whether a process without descriptors may have closed the connection, which had no answer
        yet, to make room for another."""
        now_s = time.monotonic()
        with self._lock:
            return conversation.pid is None and any(
                conversation.began_s < until_s and since_s < now_s
                for _, since_s, until_s in self._hoards
            )

    def _hoarded(self, conversation: Conversation) -> bool:
        with self._lock:
            return any(
                conversation.pid == pid and since_s - QUEUED_S < conversation.began_s < until_s
                for pid, since_s, until_s in self._hoards
            )


class Subject:
    def __init__(self, folder: Path, configuration: Configuration, workers: int) -> None:
        """`workers` of all groups."""
        self.folder = folder
        self.configuration = configuration
        self.workers = workers
        self.addresses: list[Address] = []
        self.casualties = Casualties()
        self.struck: dict[str, int] = {"SIGKILL": 0, "exit_status_3": 0, "exit_status_1": 0}
        self.generation = 1
        self.slowest_return_s = 0.0
        configuration.content.write_bytes(text_of(FILE_TOKEN, FILE_BYTES))
        self.log = folder / "log"

    def start(self) -> None:
        self.status_path = self.folder / "status"
        command = [sys.executable, "-m", "headway", "serve"]
        command += ["--config", str(self.configuration.path)]
        command += ["--status-socket", str(self.status_path)]
        # A session of its own: Ctrl-C is for the soak, which ends the server.
        self.process = subprocess.Popen(
            ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command],
            cwd=self.folder,
            env={**os.environ, **GIVE_BACK},
            stdout=subprocess.DEVNULL,
            stderr=self.log.open("wb"),
            start_new_session=True,
        )
        self.wait_for("the server listens", lambda: self.configuration.addresses(self.said()))
        self.addresses = self.configuration.addresses(self.said())
        self.wait_for_workers()

    def ports(self) -> list[int]:
        return [each.place[1] for each in self.addresses if not isinstance(each.place, str)]

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, what: str, condition: Any) -> float:
        """Returns how long it took."""
        began_s = time.monotonic()
        while not condition():
            if self.process.poll() is not None:
                raise SoakFailure(f"the server ended with {self.process.returncode}")
            if time.monotonic() > began_s + PATIENCE_S:
                raise SoakFailure(f"{what}: not within {PATIENCE_S:g} s")
            time.sleep(0.02)
        return time.monotonic() - began_s

    # Asking

    def status(self) -> dict[str, Any]:
        pieces = []
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PATIENCE_S)
                connection.connect(str(self.status_path))
                while piece := connection.recv(65_536):
                    pieces.append(piece)
        except OSError as error:
            raise SoakFailure(f"the supervisor does not say its status: {error}") from None
        document: dict[str, Any] = json.loads(b"".join(pieces))
        return document

    def pids(self, *states: str, groups: Sequence[str] = GROUPS) -> list[int]:
        """Of workers; templates serve nobody."""
        return [
            process["pid"]
            for group in self.status()["groups"]
            for process in group["processes"]
            if group["name"] in groups and process["number"] is not None
            if not states or process["state"] in states
        ]

    def connections(self, pid: int) -> list[Connection]:
        """Those by TCP that a worker has accepted and not closed."""
        return connections(pid, self.ports())

    def has_connections(self, pid: int) -> bool:
        paths = [each.place for each in self.addresses if isinstance(each.place, str)]
        return bool(self.connections(pid)) or any(unix_connections(pid, path) for path in paths)

    def wait_for_workers(self) -> None:
        """Until as many serve as should."""
        took_s = self.wait_for(
            f"{self.workers} processes serve", lambda: len(self.pids("serving")) == self.workers
        )
        self.slowest_return_s = max(self.slowest_return_s, took_s)

    def check_deaths(self) -> Counter[str]:
        """No process ended of anything that was not done to it."""
        deaths: Counter[str] = Counter()
        for group in self.status()["groups"]:
            deaths.update(group["deaths"]["by_reason"])
        for reason, count in deaths.items():
            if reason not in PLANNED and count > self.struck.get(reason, 0):
                done = self.struck.get(reason, 0)
                raise SoakFailure(f"{count} workers ended by {reason}, and {done} were made to")
        return deaths

    def unclosed(self, address: Address) -> int:
        """Iterables of the application that the server has not closed, in one of the workers."""
        with Conversation(address) as conversation:
            conversation.send(b"GET /balance?token=b HTTP/1.0\r\nHost: soak\r\n\r\n")
            return int(conversation.read_response().body)

    # Striking

    def hang_up(self) -> None:
        """SIGHUP, and waits until the next generation serves and the one before has gone."""
        self.generation += 1
        self.process.send_signal(signal.SIGHUP)
        self.wait_for(
            f"generation {self.generation} serves",
            lambda: self.status()["generation"] == self.generation,
        )
        self.wait_for_workers()

    def wait_for_retired(self) -> None:
        self.wait_for("those that retire have ended", lambda: len(self.pids()) == self.workers)

    def kill(self, pid: int) -> None:
        """SIGKILL. It is stopped first, so that it is known which connections it has."""
        try:
            os.kill(pid, signal.SIGSTOP)
            self.wait_for(f"pid {pid} is stopped", lambda: is_stopped(pid))
            ports = {each.remote_port for each in self.connections(pid)}
            self.casualties.add_death(pid, ports)
            self.struck["SIGKILL"] += 1
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.wait_for(f"pid {pid} is gone", lambda: pid not in self.pids())
        self.wait_for_workers()

    def exit(self, address: Address) -> None:
        """A page ends its process by os._exit."""
        with Conversation(address) as conversation:
            conversation.send(b"GET /balance?token=b HTTP/1.1\r\nHost: soak\r\n\r\n")
            conversation.read_response()
            pid = conversation.pid
            if pid is None:
                raise SoakFailure("a worker did not say its pid")
            self.struck["exit_status_3"] += 1
            conversation.send(b"GET /exit?token=e HTTP/1.1\r\nHost: soak\r\n\r\n")
            self.wait_for(f"pid {pid} is stopped", lambda: is_stopped(pid))
            ports = {each.remote_port for each in self.connections(pid)}
            # Until it exits its other threads go on, and may accept.
            began_s = time.monotonic()
            os.kill(pid, signal.SIGCONT)
            self.wait_for(f"pid {pid} is gone", lambda: pid not in self.pids())
            self.casualties.add_death(pid, ports, time.monotonic() - began_s + QUEUED_S)
        self.wait_for_workers()

    def stubborn(self, address: Address) -> threading.Thread:
        """A request that nothing ends: its process is replaced, and cut off at last."""
        conversation = Conversation(address)
        conversation.socket.settimeout(PATIENCE_S)
        self.struck["exit_status_1"] += 1
        conversation.send(b"GET /stubborn?token=s HTTP/1.1\r\nHost: soak\r\n\r\n")

        def wait() -> None:
            with conversation:
                try:
                    conversation.read_response()
                except (Missing, Wrong):
                    return

        thread = threading.Thread(target=wait, name="stubborn", daemon=True)
        thread.start()
        return thread

    def hoard(self, address: Address, seconds: float) -> None:
        """A page takes all descriptors of its process for so long."""
        with Conversation(address) as conversation:
            since_s = time.monotonic()
            request = f"GET /hoard?token=h&size=9&seconds={seconds} HTTP/1.0\r\n"
            conversation.send(f"{request}Host: soak\r\n\r\n".encode())
            if conversation.read_response().body != text_of("h", 9):
                raise SoakFailure("the page that hoards descriptors failed")
            assert conversation.pid
            self.casualties.add_hoard(conversation.pid, since_s)

    # Ending

    def stop(self) -> None:
        """SIGTERM; what the server did is judged."""
        self.process.terminate()
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise SoakFailure(f"the server runs {PATIENCE_S:g} s after SIGTERM") from None
        # 1: a request was cut off, as those of /stubborn are.
        if status not in ((0, 1) if self.struck["exit_status_1"] else (0,)):
            raise SoakFailure(f"the server ended with exit status {status}")

    def destroy(self) -> None:
        """Ends a server that still runs: by SIGTERM, twice, then by SIGKILL."""
        for number, patience_s in ((signal.SIGTERM, 3), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            if self.process.poll() is None:
                self.process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience_s)
