"""Sends requests of one size over one connection, each after the response to the one before.

    sized_client.py PORT {download,upload,headers} BYTES

A download asks for a body of so many bytes, an upload sends one, and with `headers` the request has
a header field of so many bytes. The program answers with the latencies in seconds, up to the last
byte of each response.
"""

from __future__ import annotations

import socket
import sys
import time

import window

TIMEOUT_S = 60.0
RECEIVE_BYTES = 1 << 20
END_OF_HEAD = b"\r\n\r\n"


def head(kind: str, size: int) -> bytes:
    path = f"/{size}" if kind == "download" else "/0"
    method = "POST" if kind == "upload" else "GET"
    lines = [f"{method} {path} HTTP/1.1", "Host: bench"]
    if kind == "upload":
        lines.append(f"Content-Length: {size}")
    if kind == "headers":
        lines.append(f"X-Padding: {'x' * size}")
    return ("\r\n".join(lines)).encode() + END_OF_HEAD


def receive_response(connection: socket.socket) -> None:
    """Receives a response with a Content-Length. Raises ConnectionError if its status is not 200
    or the connection ends early."""
    received = b""
    while END_OF_HEAD not in received:
        received += receive_some(connection)
    lines, _, begun = received.partition(END_OF_HEAD)
    if not lines.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(lines.decode("latin-1"))
    fields = dict(line.lower().split(b":", 1) for line in lines.split(b"\r\n")[1:])
    left = int(fields[b"content-length"]) - len(begun)
    while left > 0:
        left -= len(receive_some(connection))


def receive_some(connection: socket.socket) -> bytes:
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionError("the server closed the connection")
    return data


def main() -> None:
    port, kind, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    request_head = head(kind, size)
    body = bytes(size) if kind == "upload" else b""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask() -> float:
            began_s = time.perf_counter()
            connection.sendall(request_head)
            connection.sendall(body)
            receive_response(connection)
            return time.perf_counter() - began_s

        # The first request fills buffers and caches.
        ask()
        window.say(size=size)
        times = window.hear_window()
        window.sleep_until(times.begin_ns)
        latencies_s = [ask()]
        while time.monotonic_ns() < times.end_ns:
            latencies_s.append(ask())
    window.answer(latencies_s=latencies_s)


if __name__ == "__main__":
    main()
