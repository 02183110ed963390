"""The load of a web server: a closed loop of clients, each on a connection of its own.

    http_load.py PORT PATH CONNECTIONS

A client asks again as soon as it is answered, from the moment that the window is named, so what
comes before the window warms the server up. One thread serves all clients. It answers with the
latencies of the responses that came within the window, in seconds, and with how many requests
failed: closed connections, statuses other than 200. Of a client that cannot connect, the next
attempt waits.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time

import window
from window import NS

RECEIVE_BYTES = 65536
TIMEOUT_S = 10.0
# The pause after a failure, so that a missing server is not requested without end.
PAUSE_S = 0.05


class Client:
    """One connection with at most one outstanding request."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port = port
        self._request = request
        self._received = b""
        self.asked_ns = 0
        self.socket = self._connect()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def reconnect(self) -> None:
        self.socket.close()
        self.socket = self._connect()

    def ask(self) -> None:
        self._received = b""
        self.asked_ns = time.monotonic_ns()
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Whether the response is complete. Raises OSError if it is not a response."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed a connection")
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return False
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(f"the server answered {head[:40]!r}")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        return len(body) >= int(length)


class Load:
    """All clients, from the first message of the benchmark to the answer."""

    def __init__(self, port: int, path: str, connections: int) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._selector = selectors.DefaultSelector()
        self._clients = [Client(port, request) for _ in range(connections)]
        self.latencies_s: list[float] = []
        self.errors = 0

    def run(self, times: window.Window) -> None:
        for client in self._clients:
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            client.ask()
        while (now_ns := time.monotonic_ns()) < times.end_ns:
            for key, _ in self._selector.select((times.end_ns - now_ns) / NS):
                self._receive(key.data, times)

    def _receive(self, client: Client, times: window.Window) -> None:
        try:
            is_whole = client.receive()
            now_ns = time.monotonic_ns()
            if is_whole:
                if times.begin_ns <= now_ns < times.end_ns:
                    self.latencies_s.append((now_ns - client.asked_ns) / NS)
                client.ask()
        except OSError:
            self._start_again(client, times)

    def _start_again(self, client: Client, times: window.Window) -> None:
        self._selector.unregister(client.socket)
        while time.monotonic_ns() < times.end_ns:
            self.errors += 1
            time.sleep(PAUSE_S)
            try:
                client.reconnect()
                client.ask()
            except OSError:
                continue
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            return


def main() -> None:
    port, path, connections = sys.argv[1:]
    load = Load(int(port), path, int(connections))
    window.say()
    load.run(window.hear_window())
    window.answer(latencies_s=load.latencies_s, errors=load.errors, cpu_s=time.process_time())


if __name__ == "__main__":
    main()
