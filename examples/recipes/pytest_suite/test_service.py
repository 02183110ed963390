"""A test of a service that answers in one thread while another one computes, as in an application
whose background work the tests do not turn off."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from latencies import SECONDS, print_latencies

PAUSE_S = 0.005


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="service")
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def computed() -> Iterator[list[int]]:
    ended = threading.Event()
    results: list[int] = []

    def compute() -> None:
        while not ended.is_set():
            results.append(sum(number * number for number in range(1_000_000)))

    thread = threading.Thread(target=compute, name="background work")
    thread.start()
    yield results
    ended.set()
    thread.join()


def test_the_service_answers(
    port: int, computed: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    latencies_s = []
    end_s = time.monotonic() + SECONDS
    while (began_s := time.monotonic()) < end_s:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        connection.close()
        latencies_s.append(time.monotonic() - began_s)
        time.sleep(PAUSE_S)
    with capsys.disabled():
        print_latencies(latencies_s, len(computed), SECONDS)
