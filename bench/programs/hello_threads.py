"""Threads that call `hello` as a WSGI server does, in process and without sockets.

    hello_threads.py THREADS

A call is what PEP 3333 asks of a server around the application: an environ of the request's own, a
start_response that keeps status and headers, the body taken piece by piece. No server takes part,
Headway neither: its threads get requests from sockets alone. So this is the ceiling that a build of
CPython sets to threads that serve, by what they share: the application's code, its module's globals
and CPython's own state. Sharing shows as CPU time for a call that grows with the threads; a machine
that is busy otherwise takes calls only.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import hello
import window
from computation import control

# Calls between two looks at what threads share here, and no server's threads share.
CALLS = 1_000


def new_environ() -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "127.0.0.1:8000",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def call() -> tuple[str, list[tuple[str, str]], bytes]:
    """One request's response."""
    started: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        started.append((status, headers))

    body = b"".join(hello.app(new_environ(), start_response))
    status, headers = started[0]
    return status, headers, body


def call_often() -> None:
    for _ in range(CALLS):
        call()


def main() -> None:
    if call() != ("200 OK", hello.HEADERS, b"hello"):
        raise SystemExit("hello does not say hello")
    found = control(int(sys.argv[1]), call_often)
    window.answer(
        calls_per_s=found["work_per_s"] * CALLS, cpu_per_call_s=found["cpu_per_work_s"] / CALLS
    )


if __name__ == "__main__":
    main()
