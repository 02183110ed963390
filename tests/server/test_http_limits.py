"""The limits of requests and of their time, `HttpLimits`, with a server for each."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import TIMEOUT_S, Served, read_response, read_to_end, status_of

from headway.address import Address
from headway.server.binding import bind
from headway.server.settings import HttpLimits, ProcessGroup
from headway.server.worker.serving import Server

pytestmark = pytest.mark.free_threading

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"


class Limited:
    """A server in this process; `called` counts the requests that reach its application, which
    answers with the length of the body or with what reading it raised."""

    def __init__(self, **limits: float) -> None:
        self.called = 0
        self.raised = threading.Event()
        self.ended = threading.Semaphore(0)  # streams without end that were cut off
        self.let_raise = False
        listener = bind(Address("127.0.0.1", 0))
        self.address = listener.address
        group = ProcessGroup(threads=2, http=HttpLimits(**limits))
        self.server = Server(self.application, [listener], group)
        self.server.start()

    def application(self, environ: dict[str, object], start_response: object) -> object:
        self.called += 1
        if environ["PATH_INFO"] == "/endless":
            start_response("200 OK", [])
            return self.endless()
        try:
            answer = b"%d" % len(environ["wsgi.input"].read())
        except OSError as error:
            self.raised.set()
            if self.let_raise:
                raise
            answer = f"{type(error).__name__}: {error}".encode()
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]

    def endless(self) -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 65_536
        finally:
            self.ended.release()

    def connect(self) -> socket.socket:
        connection = socket.create_connection((self.address.host, self.address.port))
        connection.settimeout(TIMEOUT_S)
        return connection

    def converse(self, request: bytes) -> bytes:
        with self.connect() as connection:
            connection.sendall(request)
            return read_to_end(connection)


@contextlib.contextmanager
def limited(**limits: float) -> Iterator[Limited]:
    server = Limited(**limits)
    try:
        yield server
    finally:
        server.server.stop()
        assert server.server.join(10) == 0
        # The server has the application, whose object has the server.
        del server.server


def chunked(*sizes: int) -> bytes:
    chunks = b"".join(b"%x\r\n%s\r\n" % (size, b"x" * size) for size in sizes)
    return POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


CLOSE = b"Connection: close\r\n\r\n"
TARGET = b"GET /%s HTTP/1.1\r\nHost: a\r\n" + CLOSE


@pytest.mark.parametrize(
    ("limits", "allowed", "refused", "status"),
    [
        ({"max_target_bytes": 100}, TARGET % (b"a" * 99), TARGET % (b"a" * 100), 414),
        (
            {"max_head_bytes": 300},
            GET + b"X: ".ljust(300 - len(GET + CLOSE) - 2, b"x") + b"\r\n" + CLOSE,
            GET + b"X: ".ljust(301 - len(GET + CLOSE) - 2, b"x") + b"\r\n" + CLOSE,
            431,
        ),
        ({"max_fields": 5}, GET + b"X:\r\n" * 3 + CLOSE, GET + b"X:\r\n" * 4 + CLOSE, 431),
        ({"max_fields": 500}, GET + b"X:\r\n" * 498 + CLOSE, GET + b"X:\r\n" * 499 + CLOSE, 431),
        (
            {"max_body_bytes": 9},
            POST + b"Content-Length: 9\r\n" + CLOSE + b"123456789",
            POST + b"Content-Length: 10\r\n" + CLOSE,
            413,
        ),
    ],
    ids=["target", "head", "few fields", "many fields", "body"],
)
def test_a_limit_is_exact_and_named(
    limits: dict[str, float], allowed: bytes, refused: bytes, status: int
) -> None:
    with limited(**limits) as server:
        assert status_of(server.converse(allowed)) == 200
        response = server.converse(refused)
        assert server.called == 1
    assert status_of(response) == status
    (number,) = limits.values()
    assert str(number).encode() in response.partition(b"\r\n\r\n")[2]


def test_who_asks_first_is_refused_without_sending() -> None:
    with limited(max_body_bytes=10) as server:
        head = b"Expect: 100-continue\r\nContent-Length: 11\r\n\r\n"
        assert status_of(server.converse(POST + head)) == 413


def test_a_large_body_gets_to_read_why_it_is_refused() -> None:
    with limited(max_body_bytes=1_000_000) as server, server.connect() as connection:
        connection.sendall(POST + b"Content-Length: 5000000\r\n\r\n" + b"x" * 5_000_000)
        assert status_of(read_to_end(connection)) == 413


@pytest.mark.parametrize("sizes", [(5, 6), (11,), (1 << 40,)])
def test_a_small_chunked_body_is_refused_before_the_application_runs(sizes: tuple[int]) -> None:
    request = chunked(*sizes) if sum(sizes) < 100 else chunked().replace(b"0\r\n", b"fffffffff\r\n")
    with limited(max_body_bytes=10) as server:
        assert status_of(server.converse(request)) == 413
        assert server.called == 0


@pytest.mark.parametrize("let_raise", [False, True])
def test_a_chunked_body_that_grows_too_large_raises(let_raise: bool) -> None:
    with limited(max_body_bytes=200_000) as server:
        assert (
            status_of(
                server.converse(chunked(*[50_000] * 4).replace(b"\r\n\r\n", b"\r\n" + CLOSE, 1))
            )
            == 200
        )
        server.let_raise = let_raise
        response = server.converse(chunked(*[50_000] * 5))
        assert server.called == 2
        assert server.raised.is_set()
    if let_raise:
        assert status_of(response) == 413
    else:
        assert response.endswith(b"OSError: The body is larger than 200000 bytes.")
    assert b"\r\nConnection: close" in response


def test_a_head_that_does_not_come_in_time() -> None:
    with limited(head_timeout_s=0.1) as server, server.connect() as connection:
        connection.sendall(b"GET / HT")
        assert status_of(read_to_end(connection)) == 408


def test_a_body_that_does_not_come_in_time() -> None:
    with limited(body_timeout_s=0.1) as server:
        for sent in (10, 100_000):
            with server.connect() as connection:
                connection.sendall(POST + b"Content-Length: 200000\r\n\r\n" + b"x" * sent)
                if sent == 10:
                    assert status_of(read_to_end(connection)) == 408
                else:
                    assert b"TimeoutError: " in read_to_end(connection)
        server.let_raise = True
        with server.connect() as connection:
            connection.sendall(POST + b"Content-Length: 200000\r\n\r\n" + b"x" * 100_000)
            assert status_of(read_to_end(connection)) == 408


def test_a_connection_that_is_not_used() -> None:
    with limited(keep_alive_timeout_s=0.1) as server:
        with server.connect() as unused:
            assert read_to_end(unused) == b""
        with server.connect() as used:
            used.sendall(GET + b"\r\n")
            assert read_response(used).body == b"0"
            assert read_to_end(used) == b""


def test_a_client_that_does_not_read() -> None:
    """Its thread comes back, and the response has no end that could be taken for one."""
    with limited(write_timeout_s=0.1) as server:
        slow = [server.connect() for _ in range(4)]
        for connection in slow:
            connection.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        with server.connect() as other:
            other.sendall(GET + b"\r\n")
            assert read_response(other).body == b"0"
        # Read before, it would not be one that takes nothing.
        assert all(server.ended.acquire(timeout=TIMEOUT_S) for _ in slow)
        for connection in slow:
            received = b""
            with connection, contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(1 << 20):
                    received = received[-10:] + piece
            assert not received.endswith(b"\r\n0\r\n\r\n")


def test_connections_beyond_the_limit_wait_their_turn() -> None:
    with limited(max_connections=3) as server, contextlib.ExitStack() as stack:
        kept = [stack.enter_context(server.connect()) for _ in range(3)]
        for connection in kept:
            connection.sendall(GET + b"\r\n")
            assert read_response(connection).body == b"0"
        waiting = stack.enter_context(server.connect())
        waiting.sendall(GET + b"\r\n")
        kept[0].sendall(GET + b"\r\n")
        assert read_response(kept[0]).body == b"0"
        waiting.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        waiting.settimeout(TIMEOUT_S)
        kept[1].close()
        assert read_response(waiting).body == b"0"


def test_uploads_to_a_full_disk() -> None:
    """An error of the application, told to the client although it is still sending."""
    with Served("spooling:application") as server:
        assert server.request("POST", "/", b"x" * 90_000).body == b"90000"
        for size in (110_000, 3_000_000):
            response = server.request("POST", "/", b"x" * size)
            assert response.status == 500
            assert (response.headers.get("connection") == "close") == (size > 1_000_000)
        server.wait_for(r"OSError: \[Errno 27\]")
        assert server.request("POST", "/", b"x").body == b"1"


NORMALIZED = {
    "/x/../sub//a/.": "/sub /a/",
    "/%2e/sub": "/sub ",
    "/subs/..b": " /subs/..b",
    "/../sub": 400,
    "/sub/%4": 400,
    "/sub%2Fa": 404,
    "/sub/a%00": 404,
}


@pytest.mark.parametrize("options", [(), ("--application-group", "shop")])
def test_a_normalized_path_chooses_the_mount(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "paths.py").write_text(
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [('Content-Type', 'text/plain')])\n"
        '    return [f\'{environ["SCRIPT_NAME"]} {environ["PATH_INFO"]}\'.encode()]\n'
    )
    mounts = ("--mount", "/sub=paths:app", "--normalize-path", "--app-dir", str(tmp_path))
    with Served("paths:app", *mounts, *options) as server:
        for target, found in NORMALIZED.items():
            response = server.get(target)
            answer = response.body.decode() if response.status == 200 else response.status
            assert answer == found, target
