"""Starts `headway serve` for a test and talks to it over raw sockets."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

APPS = Path(__file__).resolve().parent.parent / "apps"
TIMEOUT_S = 30


# The server's processes run in the mode that the tests run in.
FREE_THREADING = not getattr(sys, "_is_gil_enabled", lambda: True)()
MODE = ("--free-threading",) if FREE_THREADING else ()


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class Served:
    """A running `headway serve APP`; what it says on stderr is gathered as it comes."""

    def __init__(self, app: str, *options: str, **changes: str) -> None:
        bind = () if "--bind" in options else ("--bind", "127.0.0.1:0")
        command = ["-m", "headway", "serve", app, "--app-dir", str(APPS), *bind, *MODE, *options]
        self._start(command, **changes)

    def _start(self, command: list[str], **changes: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **changes},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stderr = ""
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read_stderr)
        self._reader.start()
        where = self.wait_for(r"listening on (?:https?://([\d.]+):(\d+)|unix:(.*))\n")
        self.path = where[3]
        self.address = (where[1], int(where[2])) if where[1] else None

    def _read_stderr(self) -> None:
        for line in self.process.stderr:
            with self._said:
                self.stderr += line
                self._said.notify_all()
        with self._said:
            self.stderr += "\0"
            self._said.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits until stderr has a match."""
        with self._said:
            said = self._said.wait_for(
                lambda: re.search(pattern, self.stderr) or self.stderr.endswith("\0"), TIMEOUT_S
            )
            found = re.search(pattern, self.stderr)
            assert found, f"{pattern!r} is not in stderr ({said=}):\n{self.stderr}"
            return found

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

    def stop(self, number: signal.Signals | None = signal.SIGTERM) -> int:
        """Ends the server as a user would (`None`: it has its signal) and returns its exit code."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._reader.join()
            self.stdout = self.process.stdout.read()
            self.process.stdout.close()
            self.process.stderr.close()

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
