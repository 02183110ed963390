"""`wsgi.file_wrapper`: which files are sent without being read, which part of them, and to whom."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import APPS, Served, read_response, read_to_end

sys.path.insert(0, str(APPS))
from files import SECRET, content

pytestmark = pytest.mark.free_threading

SIZE = 100_000


@pytest.fixture(scope="module")
def files() -> Iterator[Served]:
    # One thread: whoever holds it, holds up everybody.
    with Served("files:application", "--threads", "1") as server:
        yield server


def closed(files: Served) -> list[int]:
    """How far each file had been read when it was closed, since this was last asked."""
    return list(json.loads(files.get("/closed").body))


def read_to(files: Served) -> int:
    """How far the last file had been read when it was closed."""
    return closed(files)[-1]


@pytest.mark.parametrize("kind", ["buffered", "raw"])
@pytest.mark.parametrize(
    ("before", "start"), [("", 0), ("&seek=40000", 40_000), ("&seek=30000&read=7", 30_007)]
)
def test_a_file_is_sent_from_where_it_stands(
    files: Served, kind: str, before: str, start: int
) -> None:
    response = files.get(f"/?kind={kind}{before}")
    assert response.body == content(SIZE)[start:]
    assert response.headers["content-length"] == str(SIZE - start)
    assert read_to(files) == start, "it was read, not sent"


def test_what_a_file_has_not_written_yet_is_sent_too(files: Served) -> None:
    assert files.get("/?kind=random&seek=10").body == content(SIZE)[10:]
    assert read_to(files) == 10


@pytest.mark.parametrize("kind", ["bytes", "gzip", "pipe"])
def test_what_is_no_file_is_read(files: Served, kind: str) -> None:
    size = 60_000
    response = files.get(f"/?kind={kind}&size={size}")
    assert response.body == content(size)
    assert response.headers["transfer-encoding"] == "chunked"


def test_a_file_that_reads_otherwise_than_its_descriptor_is_read(files: Served) -> None:
    assert files.get("/?kind=upper").body == content(SIZE).replace(b"\n", b"|")


def test_a_file_that_another_thread_closes_is_not_mistaken_for_the_next_one() -> None:
    """Without a GIL it can, between `fileno()` and the duplication of what that returns."""
    with Served("files:application") as files:
        response = files.get("/?kind=closed")
        assert (response.status, SECRET in response.body) == (500, False), response
        files.wait_for("ValueError: read of closed file")
        # The other file is open, and as it was.
        assert files.get("/taken").body == SECRET


def test_a_file_that_claims_to_be_empty_is_read(files: Served) -> None:
    assert files.get("/?kind=proc").body == Path("/proc/version").read_bytes()


@pytest.mark.parametrize("kind", ["buffered", "bytes"])
def test_a_shorter_content_length_is_a_range(kind: str) -> None:
    with Served("files:application") as files, files.connect() as connection:
        for _ in range(2):
            request = f"GET /?kind={kind}&seek=5&length=50000 HTTP/1.1\r\nHost: a\r\n\r\n"
            connection.sendall(request.encode())
            response = read_response(connection)
            assert response.body == content(SIZE)[5:50_005]
    assert "Content-Length" not in files.stderr


def test_a_longer_content_length_is_cut_short(files: Served) -> None:
    received = files.converse(b"GET /?length=100001 HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
    assert received.count(b"HTTP/1.1 ") == 1
    assert received.endswith(content(SIZE)[-1000:])
    files.wait_for("sent less than its Content-Length")


def test_a_file_that_becomes_shorter_is_cut_short(files: Served) -> None:
    request = b"GET /?size=20000000&shrink=5000000 HTTP/1.1\r\nHost: a\r\n\r\n"
    received = files.converse(request * 2)
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"Content-Length: 20000000" in head
    assert body == content(20_000_000)[: len(body)]
    assert 0 < len(body) < 20_000_000


@pytest.mark.parametrize(
    ("request_line", "status", "length"),
    [
        (b"HEAD / HTTP/1.1", b"200", b"Content-Length: 100000"),
        (b"GET /?code=304%20Not%20Modified HTTP/1.1", b"304", b""),
        (b"GET /?code=204%20No%20Content HTTP/1.1", b"204", b""),
    ],
)
def test_no_file_follows_a_response_without_a_body(
    files: Served, request_line: bytes, status: bytes, length: bytes
) -> None:
    received = files.converse(request_line + b"\r\nHost: a\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert length in head
    assert body == b""
    assert read_to(files) == 0


def test_a_file_follows_what_was_written(files: Served) -> None:
    assert files.get("/?write=first").body == b"first" + content(SIZE)
    assert read_to(files) == SIZE, "a body in chunks cannot be sent as it is"
    assert files.get("/?write=first&length=20").body == b"first" + content(15)
    assert read_to(files) == 0


def test_the_connection_is_kept_and_pipelined_requests_keep_their_order(files: Served) -> None:
    requests = [f"GET /?seek={start} HTTP/1.1\r\nHost: a\r\n\r\n" for start in (0, 99_990, 3)]
    with files.connect() as connection:
        connection.sendall("".join(requests).encode())
        file = connection.makefile("rb")
        for start in (0, 99_990, 3):
            head = b"".join(iter(file.readline, b"\r\n"))
            assert f"Content-Length: {SIZE - start}".encode() in head
            assert file.read(SIZE - start) == content(SIZE)[start:]


def test_http_10_gets_a_file_too(files: Served) -> None:
    received = files.converse(b"GET / HTTP/1.0\r\n\r\n")
    assert received.partition(b"\r\n\r\n")[2] == content(SIZE)


def test_a_slow_reader_holds_no_thread_and_no_file(files: Served) -> None:
    # More than the buffers of a socket take.
    size = 15_000_000
    readers = [files.connect() for _ in range(4)]
    try:
        closed(files)
        for reader in readers:
            reader.sendall(f"GET /?size={size} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        # The only thread answers meanwhile, and the files were closed before they were sent.
        positions: list[int] = []
        while len(positions) < len(readers):
            positions += closed(files)
        assert positions == [0] * len(readers)
        for reader in readers:
            assert read_response(reader).body == content(size)
    finally:
        for reader in readers:
            reader.close()


def test_a_reader_that_goes_away_leaves_no_descriptor(files: Served) -> None:
    descriptors = Path(f"/proc/{int(files.get('/pid').body)}/fd")
    before = len(os.listdir(descriptors))
    for _ in range(10):
        with files.connect() as connection:
            connection.sendall(b"GET /?size=15000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            connection.recv(100)
    with files.connect() as connection:
        connection.sendall(b"GET /?size=10 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        read_to_end(connection)
    for _ in range(100):
        if len(os.listdir(descriptors)) <= before:
            break
        files.get("/?size=10")
    assert len(os.listdir(descriptors)) <= before
