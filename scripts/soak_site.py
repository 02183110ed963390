"""The application that scripts/soak_server.py has served: pages whose answers a client can check to
the last byte, and pages that do to their process what applications should not.

Each page gets the query as a dict. What it answers carries the request's own token, so that an
answer which went to another client is seen. Knows nothing of the clients.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qsl

from headway import gil

Query = dict[str, str]
Environ = dict[str, Any]
Start = Callable[..., Callable[[bytes], object]]
Page = Callable[[Query, Environ, Start], Iterable[bytes]]

FILE_TOKEN = "file"
FILE_BYTES = 300_000
SHORT_LENGTH, SHORT_BODY = 20, b"ten bytes!"
EXIT_STATUS = 3
# Beyond any request-timeout.
FOREVER_S = 120.0
PIECE_BYTES = 16_384


def text_of(token: str, size: int) -> bytes:
    """The body of a page: `size` bytes that only this token has."""
    line = token.encode() + b"\n"
    return (line * (size // len(line) + 1))[:size]


class Pieces:
    """A body in pieces of equal size. `open` counts those that the server has not closed."""

    open = 0
    _lock = threading.Lock()

    def __init__(self, body: bytes, count: int, fails: str = "") -> None:
        self._body = body
        self._size = -(-len(body) // count) or 1
        self._fails = fails
        self._count(1)

    def __iter__(self) -> Iterator[bytes]:
        if self._fails == "after":
            raise RuntimeError("before the first piece, as asked for")
        for start in range(0, len(self._body), self._size):
            if start and self._fails == "mid":
                raise RuntimeError("in the middle of the body, as asked for")
            yield self._body[start : start + self._size]

    def close(self) -> None:
        self._count(-1)
        if self._fails == "close":
            raise RuntimeError("in close(), as asked for")

    @classmethod
    def _count(cls, change: int) -> None:
        with cls._lock:
            cls.open += change


def headers(query: Query, *more: tuple[str, str]) -> list[tuple[str, str]]:
    own = [("Content-Type", "text/plain"), ("X-Token", query["token"])]
    return [*own, ("X-Pid", str(os.getpid())), *more]


def text(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    start("200 OK", headers(query))
    return [text_of(query["token"], int(query["size"]))]


def stream(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    start("200 OK", headers(query))
    return Pieces(text_of(query["token"], int(query["size"])), int(query["pieces"]))


def sized_stream(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    start("200 OK", headers(query, ("Content-Length", query["size"])))
    return Pieces(text_of(query["token"], int(query["size"])), int(query["pieces"]))


def write(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """The first half by the callable, the second by the iterable."""
    body = text_of(query["token"], int(query["size"]))
    half = len(body) // 2
    start("200 OK", headers(query))(body[:half])
    return [body[half:]]


def file(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    try:
        content = open(os.environ["SOAK_FILE"], "rb")  # noqa: SIM115 - the server closes it
    except OSError as error:
        start("503 Service Unavailable", headers(query))
        return [str(error.strerror).encode()]
    start("200 OK", headers(query))
    answer: Iterable[bytes] = environ["wsgi.file_wrapper"](content, PIECE_BYTES)
    return answer


def upload(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """Answers with the length and checksum of what it read."""
    checksum = length = 0
    for piece in read(environ["wsgi.input"], query["how"]):
        checksum = zlib.crc32(piece, checksum)
        length += len(piece)
    start("200 OK", headers(query))
    return [f"{query['token']} {length} {checksum}".encode()]


def read(stream: Any, how: str) -> Iterator[bytes]:
    if how == "whole":
        yield stream.read()
    elif how == "lines":
        yield from stream
    elif how == "pieces":
        while piece := stream.read(PIECE_BYTES):
            yield piece


def sleep(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    time.sleep(float(query["seconds"]))
    return text(query, environ, start)


def compute(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    end = time.thread_time() + float(query["seconds"])
    while time.thread_time() < end:
        sum(range(2_000))
    return text(query, environ, start)


def fail(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    when = query["when"]
    if when == "before":
        raise RuntimeError("before start_response, as asked for")
    if when == "start":
        start("no status", headers(query))
    if when == "exc_info":
        start("200 OK", headers(query))
        try:
            raise RuntimeError("after start_response, as asked for")
        except RuntimeError:
            start("500 Mine", headers(query), sys.exc_info())
            return [query["token"].encode()]
    start("200 OK", headers(query))
    return Pieces(text_of(query["token"], 100_000), 4, when)


def garbage(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    start("200 OK", headers(query))
    answers: dict[str, Any] = {"none": None, "number": 7, "text": "text", "texts": ["text"]}
    wrong: Iterable[bytes] = answers[query["what"]]
    return wrong


def short(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """Says that it has more bytes than come."""
    start("200 OK", headers(query, ("Content-Length", str(SHORT_LENGTH))))
    return [SHORT_BODY]


def fork(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return text(query, environ, start)


def exit(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """Stops its process first: whoever lets it go on can see which connections it has."""
    # By this thread, which therefore gets no further.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    os._exit(EXIT_STATUS)


def overlong(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    end = time.monotonic() + FOREVER_S
    while time.monotonic() < end:
        time.sleep(0.02)
    return text(query, environ, start)


def stubborn(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """Not even interrupt-timeout gets it out of here."""
    end = time.monotonic() + FOREVER_S
    while time.monotonic() < end:
        try:
            time.sleep(0.02)
        except BaseException:
            continue
    return text(query, environ, start)


def hoard(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """Takes all descriptors for a while."""
    hoarded = []
    try:
        while True:
            hoarded.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        time.sleep(float(query["seconds"]))
    finally:
        for descriptor in hoarded:
            os.close(descriptor)
    return text(query, environ, start)


def setting(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """The policy and the switch interval of the process."""
    policy = gil.snapshot().to_dict()["policy"]
    start("200 OK", headers(query))
    return [f"{policy} {sys.getswitchinterval():g}".encode()]


def balance(query: Query, environ: Environ, start: Start) -> Iterable[bytes]:
    """How many iterables the server has not closed."""
    start("200 OK", headers(query))
    return [str(Pieces.open).encode()]


PAGES: dict[str, Page] = {
    "/" + page.__name__: page
    for page in (
        *(text, stream, sized_stream, write, file, upload, sleep, compute, fail, garbage, short),
        *(fork, exit, overlong, stubborn, hoard, setting, balance),
    )
}


def application(environ: Environ, start_response: Start) -> Iterable[bytes]:
    query = dict(parse_qsl(environ["QUERY_STRING"]))
    return PAGES[environ["PATH_INFO"]](query, environ, start_response)
