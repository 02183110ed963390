"""Visitors of `pages`: light requests at a given rate, whatever the server does, and heavy ones.

    page_client.py PORT LIGHT_PER_S CONNECTIONS HEAVY_VISITORS [HEAVY_PORT]

Light requests are an open loop: each has its intended start, at a random moment of its period, and
its latency counts from there, also if it had to wait for one of the CONNECTIONS. A heavy visitor
asks for the next page when the last has come, at HEAVY_PORT if it is named. One thread does it all,
with select(), whose timeout is exact to the microsecond. It runs before all others if it may
(SCHED_FIFO, a right of root's): a client on another machine does not wait for a core behind the
server's threads either.

It answers with the latencies of the light requests that the window intends, in seconds; those that
are still under way some time after its end get the time until then.
"""

from __future__ import annotations

import os
import random
import select
import socket
import sys
import time
from collections import deque

import window
from window import NS

# After the window, for the requests still under way.
GRACE_NS = 2_000_000_000
SEED = 946


class Connection:
    """One connection with at most one request under way; `intended_ns` is that request's start.

    A server may close an idle connection at the moment at which the next request is sent. That
    request is sent again on a new connection, as every client of HTTP does (RFC 9112, 9.3.1); its
    latency counts from the intended start as before. `resent` counts these.
    """

    resent = 0

    def __init__(self, port: int) -> None:
        self._port = port
        self.intended_ns = 0
        self._connect()

    def _connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_reused = False
        self._received = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def ask(self, path: str, intended_ns: int) -> None:
        self.intended_ns = intended_ns
        self._received = b""
        self._request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
        self._send()

    def _send(self) -> None:
        try:
            self.socket.sendall(self._request)
        except ConnectionError:
            self._send_anew()

    def _send_anew(self) -> None:
        """Raises ConnectionError if the server closes what is no idle connection."""
        if not self._is_reused or self._received:
            raise ConnectionError("the server closed a connection")
        Connection.resent += 1
        self.socket.close()
        self._connect()
        self._send()

    def is_open(self) -> bool:
        """False if the server has closed it, as servers do after some idle seconds."""
        return not select.select([self], [], [], 0)[0]

    def receive(self) -> bool:
        """Whether the response is whole."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self._send_anew()
            return False
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return False
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(f"the server answered {head[:40]!r}")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        self._is_reused = len(body) >= int(length)
        return self._is_reused


class Visit:
    """All visitors of one window, from the warm-up to the grace after its end."""

    def __init__(
        self,
        port: int,
        light_per_s: float,
        connections: int,
        heavy_visitors: int,
        heavy_port: int,
    ) -> None:
        self._port = port
        self._connections = connections
        self._period_ns = NS / light_per_s
        self._chance = random.Random(SEED)
        self._idle = [Connection(port)]
        self._under_way: set[Connection] = set()
        self._late: deque[int] = deque()
        self._heavy = [Connection(heavy_port) for _ in range(heavy_visitors)]
        self.latencies_s: list[float] = []
        self.light_within = 0
        self.heavy_within = 0

    def run(self, times: window.Window) -> None:
        begin_ns, end_ns = times
        slot_ns = float(time.monotonic_ns())
        next_ns = self._moment_in(slot_ns)
        for connection in self._heavy:
            connection.ask("/heavy", 0)
        while True:
            now_ns = time.monotonic_ns()
            while next_ns <= now_ns and next_ns < end_ns:
                self._late.append(next_ns)
                slot_ns += self._period_ns
                next_ns = self._moment_in(slot_ns)
            self._send_light()
            if now_ns >= end_ns + GRACE_NS or (now_ns >= end_ns and not self._owed(begin_ns)):
                break
            wake_ns = min(next_ns, end_ns) if now_ns < end_ns else end_ns + GRACE_NS
            self._receive(max(0, wake_ns - now_ns) / NS, times)
        self._give_up_on(begin_ns)

    def _moment_in(self, slot_ns: float) -> int:
        return round(slot_ns + self._chance.random() * self._period_ns)

    def _send_light(self) -> None:
        while self._late:
            while self._idle and not self._idle[-1].is_open():
                self._idle.pop().socket.close()
            if not self._idle:
                if len(self._under_way) >= self._connections:
                    return
                self._idle.append(Connection(self._port))
            connection = self._idle.pop()
            connection.ask("/", self._late.popleft())
            self._under_way.add(connection)

    def _receive(self, timeout_s: float, times: window.Window) -> None:
        readable, _, _ = select.select([*self._under_way, *self._heavy], [], [], timeout_s)
        now_ns = time.monotonic_ns()
        within = times.begin_ns <= now_ns < times.end_ns
        for connection in readable:
            if not connection.receive():
                continue
            if connection in self._under_way:
                self._under_way.remove(connection)
                self._idle.append(connection)
                self.light_within += within
                if connection.intended_ns >= times.begin_ns:
                    self.latencies_s.append((now_ns - connection.intended_ns) / NS)
            else:
                self.heavy_within += within
                connection.ask("/heavy", 0)

    def _owed(self, begin_ns: int) -> list[int]:
        """When the unanswered requests of the window were to start."""
        starts = [*self._late, *(connection.intended_ns for connection in self._under_way)]
        return [start_ns for start_ns in starts if start_ns >= begin_ns]

    def _give_up_on(self, begin_ns: int) -> None:
        now_ns = time.monotonic_ns()
        self.latencies_s += [(now_ns - start_ns) / NS for start_ns in self._owed(begin_ns)]


def run_before_others() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


def main() -> None:
    port, light_per_s, connections, heavy_visitors, *heavy_port = sys.argv[1:]
    visit = Visit(
        int(port),
        float(light_per_s),
        int(connections),
        int(heavy_visitors),
        int(heavy_port[0] if heavy_port else port),
    )
    window.say(before_others=run_before_others())
    visit.run(window.hear_window())
    window.answer(
        latencies_s=visit.latencies_s,
        light_within=visit.light_within,
        heavy_within=visit.heavy_within,
        resent=Connection.resent,
    )


if __name__ == "__main__":
    main()
