"""Attacks of clients: malformed requests, slow clients, and their consequences.

Each refusal closes its own connection and no other, so every test ends with a request that works.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
from process_tree import Watched
from served import TIMEOUT_S, Served, read_response, read_to_end, status_of

pytestmark = pytest.mark.free_threading

GET = b"GET /hello HTTP/1.1\r\nHost: a\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: a\r\n"

REFUSED = {
    "header without colon": (GET + b"no colon here\r\n\r\n", 400),
    "space before the colon": (GET + b"X : y\r\n\r\n", 400),
    "no name": (GET + b": y\r\n\r\n", 400),
    "folded header": (GET + b"X: a\r\n b\r\n\r\n", 400),
    "NUL in a header": (GET + b"X: a\0b\r\n\r\n", 400),
    "HTTP/1.1 without Host": (b"GET /hello HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (GET + b"Host: b\r\n\r\n", 400),
    "length and chunked": (
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "negative length": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "length that is no number": (POST + b"Content-Length: 3x\r\n\r\nabc", 400),
    "bad chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n", 400),
    "chunk longer than it says": (
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
        400,
    ),
    "unknown transfer coding": (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
    "unknown expectation": (POST + b"Content-Length: 3\r\nExpect: tea\r\n\r\nabc", 417),
    "100 KB header": (GET + b"X: " + b"y" * 100_000 + b"\r\n\r\n", 431),
    "500 headers": (GET + b"X: y\r\n" * 500 + b"\r\n", 431),
    "20 KB URL": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "20 KB method": (b"M" * 20_000 + b" /hello HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    "no version": (b"GET /hello\r\n\r\n", 400),
    "unknown version": (b"GET /hello HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "no path": (b"GET hello HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "CONNECT": (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_request_is_refused_and_closes_only_its_connection(
    pages: Served, name: str
) -> None:
    request, status = REFUSED[name]
    with pages.connect() as other, pages.connect() as connection:
        connection.sendall(request + b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        response = read_to_end(connection)
        assert status_of(response) == status
        assert response.count(b"\r\nServer: ") == 1, "nothing after the refusal is a request"
        other.sendall(GET + b"\r\n")
        assert read_response(other).body == b"hello\n"


def test_equal_lengths_pass(pages: Served) -> None:
    length = b"Content-Length: 3\r\n"
    assert pages.converse(POST + length + length + b"\r\nabc").endswith(b"\r\n\r\nabc")


def test_a_chunked_body(pages: Served) -> None:
    body = b"3\r\nabc\r\n5;ext=1\r\ndefgh\r\n0\r\nTrailer: x\r\n\r\n"
    request = POST + b"Transfer-Encoding: chunked\r\n\r\n" + body
    assert pages.converse(request).endswith(b"\r\n\r\nabcdefgh")


def test_a_body_cut_short(pages: Served) -> None:
    assert status_of(pages.converse(POST + b"Content-Length: 10\r\n\r\nabc")) == 400


def test_a_large_body_cut_short_is_an_error_of_the_client(pages: Served) -> None:
    body = b"x" * 200_000
    assert status_of(pages.converse(POST + b"Content-Length: 300000\r\n\r\n" + body)) == 400
    bad_chunk = b"20000\r\n" + b"x" * 0x20000 + b"\r\nbad\r\n"
    request = POST + b"Transfer-Encoding: chunked\r\n\r\n" + bad_chunk
    assert status_of(pages.converse(request)) == 400
    assert "in POST /echo" not in pages.stderr, "no traceback"


def test_pipelined_requests_are_answered_in_order(checked: Served) -> None:
    targets = [b"/hello", b"/stream", b"/hello", b"/no_content", b"/stream"]
    requests = b"".join(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % target for target in targets)
    with checked.connect() as connection:
        connection.sendall(requests)
        bodies = [read_from_shared(connection) for _ in targets]
    assert bodies == [b"hello\n", b"first,second\n", b"hello\n", b"", b"first,second\n"]


def test_more_pipelined_requests_than_a_turn_runs(pages: Served) -> None:
    with pages.connect() as connection:
        connection.sendall((GET + b"\r\n") * 100 + GET + b"Connection: close\r\n\r\n")
        assert read_to_end(connection).count(b"\r\n\r\nhello\n") == 101


def test_a_request_in_many_small_pieces(checked: Served) -> None:
    request = POST + b"Content-Length: 11\r\n\r\nin a pieces"
    with checked.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            connection.sendall(bytes([byte]))
        assert read_response(connection).body == b"in a pieces"


def test_head_sends_no_body(pages: Served) -> None:
    for target, length in (("/hello", "6"), ("/sized_stream", "6"), ("/stream", None)):
        with pages.connect() as connection:
            request = f"HEAD {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            head, _, body = read_to_end(connection).partition(b"\r\n\r\n")
        assert body == b""
        assert (f"Content-Length: {length}".encode() in head) == (length is not None)


def test_http_10_closes_unless_asked(pages: Served) -> None:
    response = pages.converse(b"GET /stream HTTP/1.0\r\n\r\n")
    assert response.endswith(b"\r\n\r\nfirst,second\n")
    assert b"Transfer-Encoding" not in response
    with pages.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            response = read_response(connection)
            assert response.headers["connection"] == "keep-alive"
            assert response.body == b"hello\n"
        connection.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
        assert status_of(read_to_end(connection)) == 200


def test_connection_close(checked: Served) -> None:
    with checked.connect() as connection:
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        assert b"Connection: close\r\n" in read_to_end(connection)


def test_100_continue_comes_when_the_application_reads(checked: Served) -> None:
    head = b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    with checked.connect() as connection:
        connection.sendall(POST + head)
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert connection.recv(len(interim), socket.MSG_WAITALL) == interim
        connection.sendall(b"abc")
        assert read_response(connection).body == b"abc"


def test_no_100_continue_for_a_body_that_nobody_reads(checked: Served) -> None:
    head = b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    with checked.connect() as connection:
        connection.sendall(head)
        response = read_to_end(connection)
        assert status_of(response) == 200
        assert b"Connection: close\r\n" in response


def test_an_unread_body_does_not_become_the_next_request(checked: Served) -> None:
    smuggled = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
    head = b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(smuggled)
    with checked.connect() as connection:
        for _ in range(2):
            connection.sendall(head + smuggled)
            assert read_response(connection).body == b"did not look\n"


def test_a_request_behind_a_large_body_is_not_read_with_it(pages: Served) -> None:
    body = b"0123456789" * 50_000
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    last = b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with pages.connect() as connection:
        connection.sendall(head + body + last)
        received = read_to_end(connection)
    first, _, second = received.partition(body)
    assert status_of(first) == status_of(second) == 200
    assert second.endswith(b"hello\n")


def test_a_large_unread_body_does_not_lose_the_response(checked: Served) -> None:
    response = checked.request("POST", "/unread", b"x" * 3_000_000)
    assert response.body == b"did not look\n"
    assert response.headers["connection"] == "close"


def test_idle_and_partial_connections_block_nobody(checked: Served) -> None:
    idle = [checked.connect() for _ in range(200)]
    partial = [checked.connect() for _ in range(200)]
    for connection in partial:
        connection.sendall(b"GET /hello HTTP/1.1\r\nHo")
    assert checked.get("/hello").body == b"hello\n"
    partial[0].sendall(b"st: a\r\n\r\n")
    assert read_response(partial[0]).body == b"hello\n"
    for connection in idle + partial:
        connection.close()
    assert checked.get("/hello").body == b"hello\n"


def test_200_slow_writers_that_go_on_writing(checked: Served) -> None:
    request = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
    writers = [checked.connect() for _ in range(200)]
    for byte in request[:-1]:
        for writer in writers:
            writer.sendall(bytes([byte]))
        assert checked.get("/hello").body == b"hello\n"
    for writer in writers:
        writer.sendall(request[-1:])
    for writer in writers:
        assert read_response(writer).body == b"hello\n"
        writer.close()


def test_slow_senders_of_small_bodies_hold_no_thread(checked: Served) -> None:
    slow = [checked.connect() for _ in range(20)]
    for connection in slow:
        connection.sendall(POST + b"Content-Length: 4\r\n\r\nab")
    assert checked.get("/hello").body == b"hello\n"
    for connection in slow:
        connection.sendall(b"cd")
        assert read_response(connection).body == b"abcd"
        connection.close()


def test_slow_readers_of_collected_responses_hold_no_thread(pages: Served) -> None:
    slow = [pages.connect() for _ in range(20)]
    length = 20_000_000  # more than the kernel keeps for both ends
    for connection in slow:
        connection.sendall(b"GET /large?%d HTTP/1.1\r\nHost: a\r\n\r\n" % length)
        connection.recv(1)
    assert pages.get("/hello").body == b"hello\n"
    for connection in slow[1:]:
        connection.close()
    rest = 0
    with slow[0] as connection:
        connection.sendall(GET + b"Connection: close\r\n\r\n")
        received = read_to_end(connection)
        rest = 1000 * received.count(b"x" * 1000)
        assert received.endswith(b"\r\n\r\nhello\n")
    assert rest == length


def test_a_client_that_goes_away_ends_a_stream(pages: Served) -> None:
    with pages.connect() as connection:
        connection.sendall(b"GET /large_stream?10000000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.recv(65536)
    assert pages.get("/hello").body == b"hello\n"
    # The 10 GB page would keep its thread beyond the graceful timeout, and the fixture would fail.


def test_a_client_that_half_closes_gets_its_response(pages: Served) -> None:
    assert pages.converse(GET + b"\r\n").endswith(b"\r\n\r\nhello\n")


FORKING = """
import os, time

def application(environ, start_response):
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    start_response("200 OK", [])
    yield b"%d" % child
    if environ["PATH_INFO"] == "/fails":
        raise ValueError("after the head")
"""


def test_a_child_that_holds_every_socket_keeps_no_client_waiting(tmp_path: Path) -> None:
    (tmp_path / "forking.py").write_text(FORKING)
    options = ("--app-dir", str(tmp_path), "--keep-alive-timeout", "0.2")
    children: list[int] = []
    with Served("forking:application", *options) as server, contextlib.ExitStack() as stack:
        stack.callback(kill, children)
        kept = stack.enter_context(server.connect())
        kept.sendall(GET + b"\r\n")
        children.append(int(read_response(kept).body))
        assert read_to_end(kept) == b""
        cut_off = stack.enter_context(server.connect())
        cut_off.sendall(b"GET /fails HTTP/1.0\r\n\r\n")
        received = read_to_reset(cut_off)
        children.append(int(received.partition(b"\r\n\r\n")[2]))


def kill(pids: list[int]) -> None:
    """Ends them before the server does, whose own ends are looked at."""
    with Watched(pids) as processes:
        for pid in pids:
            processes.kill(pid)
        assert not processes.wait(TIMEOUT_S)


def read_to_reset(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
        pytest.fail(f"no reset after {received!r}")
    return received


def read_from_shared(connection: socket.socket) -> bytes:
    """The body of one of several pipelined responses: reads not a byte too much."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, f"closed after {head!r}"
        head += byte
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        body = b""
        while size := int(read_line(connection), 16):
            body += connection.recv(size, socket.MSG_WAITALL)
            assert read_line(connection) == b""
        assert read_line(connection) == b""
        return body
    if b"content-length: " not in lowered:
        return b""
    length = int(lowered.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return connection.recv(length, socket.MSG_WAITALL) if length else b""


def read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\r\n"):
        line += connection.recv(1)
    return line[:-2]
