"""Requests in an open loop, in a process of its own: each has its due time, whatever the server
does, and its latency counts from then, also if it has to wait for a connection.

    load_program.py HOST PORT RATE CONNECTIONS    with the targets and weights on stdin, as JSON

It prints an empty JSON object when it begins. A line "BEGIN END [TARGET]" on stdin (monotonic
nanoseconds) asks for the latencies of the requests that were due between these times, in seconds,
for one target or for all, and for the number of answers between these times. The latency of a
request without an answer is the time until now. The line "drain" ends the load: the program sends
nothing any more, and prints an empty object when all requests are answered, or after DRAIN_S. This
program imports nothing of Headway, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import sys
import time
from collections import deque
from typing import NamedTuple

NS = 1e9
# Requests that were due longer ago are forgotten.
KEPT_S = 120.0
DRAIN_S = 10.0


class Due(NamedTuple):
    due_ns: int
    target: str


class Done(NamedTuple):
    request: Due
    latency_s: float
    failed: bool


class Connection:
    """A keep-alive connection with at most one request under way."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request: Due | None = None
        self._received = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def ask(self, request: Due) -> None:
        self.request = request
        self._received = b""
        head = f"GET {request.target} HTTP/1.1\r\nHost: {self._host}\r\n\r\n"
        self.socket.sendall(head.encode("latin-1"))

    def receive(self) -> tuple[bool, bool]:
        """Whether the response is whole, and whether the connection can be used again. Raises
        OSError."""
        data = self.socket.recv(1 << 18)
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        fields = head.lower()
        if not data:
            return bool(separator), False
        if not separator:
            return False, True
        if b"\r\ntransfer-encoding: chunked" in fields:
            whole = body.endswith(b"0\r\n\r\n")
        elif b"\r\ncontent-length:" in fields:
            length = fields.partition(b"\r\ncontent-length:")[2].split(b"\r\n")[0]
            whole = len(body) >= int(length)
        else:
            # The end of the connection is that of the body, unless there is none.
            whole = fields[9:12] in (b"204", b"304")
        return whole, not (whole and b"\r\nconnection: close" in fields)


class Load:
    def __init__(
        self, host: str, port: int, rate: float, connections: int, targets: dict[str, float]
    ) -> None:
        self._address = host, port
        self._period_ns = NS / rate
        self._most = connections
        self._targets, self._weights = list(targets), list(targets.values())
        self._chance = random.Random()
        self._idle: list[Connection] = []
        self._under_way: set[Connection] = set()
        self._late: deque[Due] = deque()
        self._done: deque[Done] = deque()

    def run(self) -> None:
        """Until stdin is closed."""
        slot_ns = float(time.monotonic_ns())
        due = self._next(slot_ns)
        while True:
            now_ns = time.monotonic_ns()
            while due.due_ns <= now_ns:
                self._late.append(due)
                slot_ns += self._period_ns
                due = self._next(slot_ns)
            self._send()
            wait_s = max(0.0, (due.due_ns - time.monotonic_ns()) / NS)
            waiting: list[Connection | int] = [*self._under_way, 0]
            readable, _, _ = select.select(waiting, [], [], wait_s)
            for each in readable:
                if isinstance(each, Connection):
                    self._receive(each)
                elif not self._answer():
                    return

    def _next(self, slot_ns: float) -> Due:
        """At a random moment of its period, so that requests do not come in step with anything."""
        due_ns = round(slot_ns + self._chance.random() * self._period_ns)
        return Due(due_ns, self._chance.choices(self._targets, self._weights)[0])

    def _send(self) -> None:
        while self._late and (self._idle or len(self._under_way) < self._most):
            try:
                connection = self._idle.pop() if self._idle else Connection(*self._address)
                connection.ask(self._late[0])
            except OSError:
                # An idle connection that the server has closed; a refused one ends the program.
                if not self._idle:
                    self._check()
                continue
            self._late.popleft()
            self._under_way.add(connection)

    def _check(self) -> None:
        """Raises OSError if the server has gone."""
        socket.create_connection(self._address).close()

    def _receive(self, connection: Connection) -> None:
        try:
            whole, reusable = connection.receive()
        except OSError:
            whole, reusable = False, False
        if reusable and not whole:
            return
        self._under_way.remove(connection)
        request = connection.request
        assert request is not None
        now_ns = time.monotonic_ns()
        self._done.append(Done(request, (now_ns - request.due_ns) / NS, not whole))
        while self._done and self._done[0].request.due_ns < now_ns - KEPT_S * NS:
            self._done.popleft()
        if reusable:
            self._idle.append(connection)
        else:
            connection.socket.close()

    def _answer(self) -> bool:
        """Answers a question; False if there will be no more."""
        words = sys.stdin.readline().split()
        if not words:
            return False
        if words == ["drain"]:
            self._drain()
            return False
        begin_ns, end_ns = map(int, words[:2])
        target = words[2] if len(words) > 2 else None
        now_ns = time.monotonic_ns()
        under_way = [each.request for each in self._under_way if each.request is not None]
        within = [
            each
            for each in (
                *self._done,
                *(Done(due, (now_ns - due.due_ns) / NS, False) for due in self._late),
                *(Done(due, (now_ns - due.due_ns) / NS, False) for due in under_way),
            )
            if begin_ns <= each.request.due_ns < end_ns and target in (None, each.request.target)
        ]
        # In an overload the server answers fewer requests than are due, and earlier ones.
        answered = sum(
            not each.failed
            and begin_ns <= each.request.due_ns + each.latency_s * NS < end_ns
            and target in (None, each.request.target)
            for each in self._done
        )
        answer = {
            "latencies_s": [each.latency_s for each in within],
            "answered": answered,
            "failures": sum(each.failed for each in within),
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        return True

    def _drain(self) -> None:
        end_s = time.monotonic() + DRAIN_S
        while self._under_way and (left_s := end_s - time.monotonic()) > 0:
            for each in select.select([*self._under_way], [], [], left_s)[0]:
                self._receive(each)
        print("{}", flush=True)


def main() -> None:
    host, port, rate, connections = sys.argv[1:]
    targets = json.loads(sys.stdin.readline())
    load = Load(host, int(port), float(rate), int(connections), targets)
    print("{}", flush=True)
    try:
        load.run()
    except OSError as error:
        print(f"the server does not answer: {error}", file=sys.stderr)
        os._exit(1)


if __name__ == "__main__":
    main()
