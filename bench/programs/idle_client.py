"""Keeps many idle connections to a server, and asks for hello beside them.

    idle_client.py PORT CONNECTIONS FIRST

Each connection asks once and is then kept open. Within the window the client asks on new
connections, now and then; after it, once more on a share of the idle ones. It answers with both
counts of requests and of answers, and with the latencies of the first kind, connect() included.

One source address has 28,000 ports at most, some of them in TIME_WAIT: it uses several of
127.0.0.0/8. FIRST is the number of connections that other clients keep open; their addresses come
first.
"""

from __future__ import annotations

import resource
import socket
import sys
import time

import window

# No more than a server's threads for connections: Apache drops idle ones when all are busy.
ASKED_AT_ONCE = 50
CONNECTIONS_PER_ADDRESS = 2_000
FRESH_EVERY_NS = 5_000_000
# The server may have to be waited for, up to here; then it does not answer.
TIMEOUT_S = 10.0
# After that it goes on with what there is: some servers take longer the more connections they have.
OPENING_S = 30.0
SPARE_DESCRIPTORS = 100
IP_BIND_ADDRESS_NO_PORT = 24  # <linux/in.h>; Python knows it from 3.12 on
IDLE_SHARE = 10
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"


def raise_descriptor_limit(connections: int) -> None:
    """Every process may go up to its hard limit, root beyond."""
    wanted = connections + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))


def connect(port: int, number: int) -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The port is to be chosen by connect(), which knows all four parts of the connection.
    connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    connection.bind((f"127.0.1.{1 + number // CONNECTIONS_PER_ADDRESS}", 0))
    connection.connect(("127.0.0.1", port))
    return connection


def is_answered(connection: socket.socket) -> bool:
    """Waits for one response to its end: that of `hello`."""
    received = b""
    try:
        while not (received.startswith(b"HTTP/1.1 200 ") and received.endswith(b"hello")):
            data = connection.recv(4096)
            if not data:
                return False
            received += data
    except OSError:
        return False
    return True


def ask_all(connections: list[socket.socket]) -> int:
    """Some at a time; how many were answered. The first that was not ends it."""
    answered = 0
    for begin in range(0, len(connections), ASKED_AT_ONCE):
        some = connections[begin : begin + ASKED_AT_ONCE]
        try:
            for connection in some:
                connection.sendall(REQUEST)
        except OSError:
            return answered
        for connection in some:
            if not is_answered(connection):
                return answered
            answered += 1
    return answered


def open_idle(port: int, count: int, first: int) -> list[socket.socket]:
    """Those that were answered. The server is to have accepted some before more come."""
    idle: list[socket.socket] = []
    end_s = time.monotonic() + OPENING_S
    while len(idle) < count and time.monotonic() < end_s:
        number = min(ASKED_AT_ONCE, count - len(idle))
        try:
            some = [connect(port, first + len(idle) + index) for index in range(number)]
        except OSError:
            break
        answered = ask_all(some)
        idle += some[:answered]
        if answered < number:
            break
    return idle


def ask_anew(port: int, times: window.Window) -> tuple[int, list[float]]:
    """How many were asked, and the latencies in seconds. The first without an answer ends it."""
    latencies_s: list[float] = []
    next_ns = times.begin_ns
    while next_ns < times.end_ns:
        window.sleep_until(next_ns)
        began_ns = time.monotonic_ns()
        try:
            with connect(port, 0) as connection:
                answered = ask_all([connection])
        except OSError:
            answered = 0
        if not answered:
            return len(latencies_s) + 1, latencies_s
        now_ns = time.monotonic_ns()
        latencies_s.append((now_ns - began_ns) / window.NS)
        next_ns = max(next_ns + FRESH_EVERY_NS, now_ns)
    return len(latencies_s), latencies_s


def main() -> None:
    port, count, first = map(int, sys.argv[1:])
    raise_descriptor_limit(count)
    idle = open_idle(port, count, first)
    window.say(idle=len(idle))
    fresh_asked, latencies_s = ask_anew(port, window.hear_window())
    again = idle[::IDLE_SHARE]
    window.answer(
        latencies_s=latencies_s,
        fresh_asked=fresh_asked,
        idle_asked=len(again),
        idle_answered=ask_all(again),
    )


if __name__ == "__main__":
    main()
