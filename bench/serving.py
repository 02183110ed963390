"""A running server: starts it, sends requests and reads what its processes use.

This module knows neither which server it runs (see `peers`) nor what is measured.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from peers import APPLICATIONS, HEADWAY, Launch, Server, command

from headway.programs import process_tree
from headway.programs.processes import ChildProgram, ProgramError
from headway_lab.setting import started

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 30.0
POLL_S = 0.02
# How many rounds of simultaneous requests the search for all processes makes.
ATTEMPTS = 50


class Served:
    """A running server that answers."""

    def __init__(self, server: Server, port: int, program: ChildProgram) -> None:
        self.server = server
        self.port = port
        self.pid = program.process.pid
        self._program = program

    def cpu_s(self) -> float:
        return process_tree.cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return process_tree.rss_bytes(self.pid)

    def workers(self) -> dict[int, list[str]]:
        """Headway's worker processes, by pid, with their fields of /proc: the children of the
        supervisor, which serves nothing."""
        found = process_tree.tree(self.pid)
        children = {
            pid: fields
            for pid, fields in found.items()
            if int(fields[process_tree.PARENT]) == self.pid
        }
        if len(children) != self.server.processes:
            self.fail(f"has {len(children)} processes, where {self.server.processes} serve")
        return children

    def wait_for_answer(self) -> None:
        end_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.get("/")
                return
            except (OSError, http.client.HTTPException) as error:
                if self._program.process.poll() is not None:
                    self.fail("ended")
                if time.monotonic() > end_s:
                    self.fail(f"does not answer ({error})")
            time.sleep(POLL_S)

    def check_meter(self) -> None:
        """Fails if Headway runs without its meter, which it reports: the row would be wrong."""
        if self.server.name == HEADWAY and "not measured" in self._program.messages():
            self.fail("runs without its meter")

    def check_mode(self) -> None:
        """Fails if CPython enabled the GIL for an extension module, which it warns about."""
        if self.server.free_threading and "(GIL) has been enabled" in self._program.messages():
            self.fail("runs with a GIL")

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            self.fail(f"answered {response.status}")
        return body

    def gil_pages(self) -> dict[int, dict[str, Any]]:
        """The page about the GIL of each process, by pid, once every process has answered."""
        processes, threads = self.server.processes, self.server.threads
        pages: dict[int, dict[str, Any]] = {}
        for _ in range(ATTEMPTS):
            for body in self._ask_at_once("/gil", 2 * processes * threads):
                page = json.loads(body)
                pages[page["pid"]] = page
            if len(pages) == processes:
                self._check_setting(pages)
                return pages
        self.fail(f"{len(pages)} processes answer, where {processes} were asked for")

    def check_interpreters(self) -> None:
        """Checks that as many interpreters as the row names answer, in the row's mode."""
        processes, threads = self.server.processes, self.server.threads
        wanted = processes * max(1, self.server.interpreters)
        pages: dict[tuple[int, int], dict[str, Any]] = {}
        for _ in range(ATTEMPTS):
            for body in self._ask_at_once("/interpreter", 2 * processes * threads):
                page = json.loads(body)
                pages[page["pid"], page["modules"]] = page
            if len(pages) >= wanted:
                break
        if len(pages) != wanted:
            self.fail(f"{len(pages)} interpreters answer, where {wanted} were asked for")
        if any(page["gil"] == self.server.free_threading for page in pages.values()):
            self.fail("runs with a GIL" if self.server.free_threading else "runs without a GIL")

    def _ask_at_once(self, path: str, count: int) -> list[bytes]:
        connections = []
        try:
            for _ in range(count):
                connection = http.client.HTTPConnection(
                    "127.0.0.1", self.port, timeout=ANSWER_TIMEOUT_S
                )
                connections.append(connection)
                connection.request("GET", path)
            return [connection.getresponse().read() for connection in connections]
        except (OSError, http.client.HTTPException) as error:
            self.fail(f"does not answer ({error})")
        finally:
            for connection in connections:
                connection.close()

    def _check_setting(self, pages: dict[int, dict[str, Any]]) -> None:
        """Checks that the policy and the switch interval are those of the row."""
        for page in pages.values():
            # CPython keeps whole microseconds.
            if not math.isclose(page["switch_interval"], self.server.switch_interval_s):
                self.fail(f"runs with a switch interval of {page['switch_interval']} s")
            if self.server.policy not in (None, page["policy"]):
                self.fail(f"runs under {page['policy']}")

    def fail(self, what: str) -> NoReturn:
        said = self._program.last_message()
        raise ProgramError(f"{self.server} {what}; the last that it said: {said}")


@contextmanager
def serving(
    server: Server, application: str, peers_bin: Path, **environment: str
) -> Iterator[Served]:
    """Yields a server once it answers. Its switch interval is its own option, or `pages` sets
    it."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        program = APPLICATIONS[application]
        launch = Launch(server, program, free_port(), peers_bin, Path(folder))
        environment["PYTHONPATH"] = str(program.folder)
        if server.name != HEADWAY:
            environment["SWITCH_INTERVAL"] = str(server.switch_interval_s)
        words = command(launch)
        with started(words, str(server), speaks=False, environment=environment) as child:
            served = Served(server, launch.port, child)
            served.wait_for_answer()
            served.check_meter()
            served.check_mode()
            yield served


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
