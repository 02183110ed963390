"""A server of any settings for a test, and a load that counts what became of every request."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from served import APPS, FREE_THREADING, TIMEOUT_S, Response, Served, read_response

HERE = Path(__file__).resolve().parent


class Supervised(Served):
    """`groups` are dicts of `ProcessGroup` fields; by default one on a free port."""

    def __init__(
        self, directory: Path, *groups: dict[str, Any], environment: Any = None, **server: Any
    ) -> None:
        self.file = directory / "settings.json"
        self.write(*groups, **server)
        self._start([str(HERE / "supervise_file.py"), str(self.file)], **environment or {})

    def write(self, *groups: dict[str, Any], **server: Any) -> None:
        default = {
            "binds": ["127.0.0.1:0"],
            "mounts": [{"path": "", "application": "processes:application"}],
            "python_path": [str(APPS)],
            "free_threading": FREE_THREADING,
        }
        groups = groups or ({},)
        self.file.write_text(json.dumps({"groups": [default | each for each in groups], **server}))

    def reload(self, generation: int) -> None:
        """SIGHUP, and waits until that generation serves."""
        self.process.send_signal(signal.SIGHUP)
        self.wait_for(rf"generation {generation} serves")

    def pids(self) -> set[int]:
        """Of those processes that answer."""
        return {int(self.get("/pid").body) for _ in range(20)}

    def wait_until(self, condition: Any) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < end, self.stderr
            time.sleep(0.02)


class Held:
    """A request that is in the application from the time when this is entered until `release`, or
    for ever. What is served is tests/apps/processes.py."""

    def __init__(self, server: Served, directory: Path, prefix: str = "") -> None:
        self._server = server
        self._file = directory / "held"
        self._prefix = prefix
        self.connection: socket.socket

    def __enter__(self) -> Held:
        self.connection = self._server.connect()
        self.connection.sendall(
            f"GET {self._prefix}/held?{self._file} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
        )
        end = time.monotonic() + TIMEOUT_S
        while not self._file.exists():
            assert time.monotonic() < end, self._server.stderr
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def release(self) -> Response:
        """Has the application answer."""
        self._file.unlink()
        return read_response(self.connection)


class Load:
    """Clients that ask for `target` one request after another, until told to stop.

    `counts` says by kind what became of each request: "answered", or why not. Every answer is
    checked to be whole. "refused" is a connection that could not be made, "closed" one that ended
    before a byte of the response: each is a failed request all the same.
    """

    def __init__(
        self, server: Served, clients: int = 4, keep_alive: bool = True, target: str = "/pid"
    ) -> None:
        self.server = server
        self.keep_alive = keep_alive
        self.target = target
        self.counts: Counter[str] = Counter()
        self.pids: Counter[int] = Counter()
        # In the order in which the answers came.
        self.answers: list[int] = []
        self._over = threading.Event()
        # Set by a test before it tells the server to end: what was not sent by then may fail.
        self.is_late = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.wait_for_answers(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_for_answers(self, count: int) -> None:
        """Until so many more came."""
        wanted = self.counts["answered"] + count
        end = time.monotonic() + TIMEOUT_S
        while self.counts["answered"] < wanted:
            assert time.monotonic() < end, (self.counts, self.server.stderr)
            time.sleep(0.01)

    def next_target(self) -> str:
        return self.target

    def _ask(self) -> None:
        connection = None
        while not self._over.is_set():
            try:
                if connection is None:
                    connection = self.server.connect()
            except OSError as error:
                # Not to spin on a server that is gone.
                self._count_failure(f"refused: {type(error).__name__}", None)
                time.sleep(0.01)
                continue
            connection = self._ask_on(connection)
        if connection is not None:
            connection.close()

    def _ask_on(self, connection: socket.socket) -> socket.socket | None:
        """One request; the connection if it can have another."""
        kind = "keep-alive" if self.keep_alive else "close"
        request = f"GET {self.next_target()} HTTP/1.1\r\nHost: a\r\nConnection: {kind}\r\n\r\n"
        is_late = None
        try:
            connection.sendall(request.encode())
            is_late = self.is_late.is_set()
            response = http.client.HTTPResponse(connection)
            response.begin()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            closed = isinstance(error, http.client.RemoteDisconnected)
            self._count_failure("closed" if closed else type(error).__name__, is_late)
        else:
            if response.status == 200 and body.isdigit():
                self.counts["answered"] += 1
                self.pids[int(body)] += 1
                self.answers.append(int(body))
            else:
                self.counts[f"status {response.status}"] += 1
            if not response.will_close:
                return connection
        connection.close()
        return None

    def _count_failure(self, kind: str, is_late: bool | None) -> None:
        """`is_late` is None if nothing was sent: then it counts whether it is now."""
        late = self.is_late.is_set() if is_late is None else is_late
        self.counts[f"{kind} (late)" if late else kind] += 1

    def failed(self) -> dict[str, int]:
        return {kind: count for kind, count in self.counts.items() if kind != "answered"}


def wait_until_refused(server: Served) -> None:
    """Until every process has closed its listening sockets, at the end of the server."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        try:
            # While the accept queues are emptied a handshake is not answered at all.
            socket.create_connection(server.address, 0.2).close()
        except ConnectionRefusedError:
            return
        except OSError:
            pass
        assert time.monotonic() < end, server.stderr
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """A process ends with its last thread, and nobody can wait for it before that."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text().rpartition(") ")[2][0]
        return state not in "ZX" or len(list((process / "task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def open_fds(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
