"""Starts `headway serve` for a test and talks to it over raw sockets."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

from started_program import TIMEOUT_S, StartedProgram

APPS = Path(__file__).resolve().parent.parent / "apps"

# The server's processes run in the mode that the tests run in.
FREE_THREADING = not getattr(sys, "_is_gil_enabled", lambda: True)()
MODE = ("--free-threading",) if FREE_THREADING else ()

# The beginning of a message in the log; the group is the pid.
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d \[(\d+)\] "


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class Served(StartedProgram):
    """A running `headway serve APP`."""

    def __init__(self, app: str, *options: str, **changes: str) -> None:
        bind = () if "--bind" in options else ("--bind", "127.0.0.1:0")
        command = ["-m", "headway", "serve", app, "--app-dir", str(APPS), *bind, *MODE, *options]
        self._start(command, **changes)

    def _start(self, command: list[str], **changes: str) -> None:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **changes},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        super().__init__(process)
        try:
            where = self.wait_for(r"listening on (?:https?://([\d.]+):(\d+)|unix:(.*))\n")
        except BaseException:
            # Nobody has it yet who could, and a later test would be blamed for what is left.
            self.stop(None if self.stderr.endswith("\0") else signal.SIGTERM)
            raise
        self.path = where[3]
        self.address = (where[1], int(where[2])) if where[1] else None

    def workers(self) -> list[int]:
        """Processes whose parent the server is."""
        pid = self.process.pid
        return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def connect(self) -> socket.socket:
        if self.path:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.path)
        else:
            connection = socket.create_connection(self.address)
        connection.settimeout(TIMEOUT_S)
        return connection

    def get(self, target: str, **options: str) -> Response:
        return self.request("GET", target, **options)

    def request(
        self, method: str, target: str, body: bytes | None = None, headers: str = ""
    ) -> Response:
        """One request on a connection of its own."""
        if body is not None:
            headers += f"Content-Length: {len(body)}\r\n"
        head = f"{method} {target} HTTP/1.1\r\nHost: test\r\n{headers}\r\n"
        with self.connect() as connection:
            connection.sendall(head.encode("latin-1") + (body or b""))
            return read_response(connection, method)

    def converse(self, request: bytes) -> bytes:
        """Sends bytes, closes the sending side, and returns all that comes back."""
        with self.connect() as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return read_to_end(connection)

    def stop(self, number: signal.Signals | None = signal.SIGTERM, *, kills: bool = False) -> int:
        """Ends the server as a user would (`None`: it has its signal) and returns its exit code.
        Fails if it kills one of its processes, unless `kills`."""
        try:
            return self.end(number, kills=kills)
        finally:
            if not self.process.stdout.closed:
                self.stdout = self.process.stdout.read()
                self.process.stdout.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.process.stderr.closed:
            assert self.stop() == 0, self.stderr


def read_response(connection: socket.socket, method: str = "GET") -> Response:
    """One response; fails if it is cut short."""
    response = HTTPResponse(connection, method=method)
    response.begin()
    body = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    response.close()
    return Response(response.status, headers, body)


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def status_of(response: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n", response)
    assert found, f"no status line: {response[:200]!r}"
    return int(found[1])
