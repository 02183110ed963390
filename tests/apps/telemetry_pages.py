"""Pages that make a server's telemetry say something: seed 000's workload, a slow page, a long
hold, a garbage collection, errors, and a body read and written.

`/deadline` is the published workload: Python until 3 ms have passed, 1 ms of waiting, and a body of
1 KB.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

WORK_S = 0.003
WAIT_S = 0.001
BODY = b"x" * 1024
SLOW_S = 0.7
HOLD_CHARACTERS = 21
CYCLES = 20_000


def compute_until_deadline() -> None:
    deadline_s = time.perf_counter() + WORK_S
    while time.perf_counter() < deadline_s:
        sum(number * number for number in range(20))


def hold() -> None:
    """One call of C code that keeps the GIL for some 0.1 s: a regular expression."""
    re.match(r"(1+)+$", "1" * HOLD_CHARACTERS + "x")


def collect() -> None:
    for _ in range(CYCLES):
        cycle: list[object] = []
        cycle.append(cycle)
    gc.collect()


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    status, body = "200 OK", BODY
    if path == "/deadline":
        compute_until_deadline()
        time.sleep(WAIT_S)
    elif path.startswith("/slow"):
        time.sleep(SLOW_S)
    elif path == "/hold":
        hold()
    elif path == "/collect":
        collect()
    elif path == "/echo":
        body = environ["wsgi.input"].read()
    elif path == "/raises":
        raise RuntimeError("this page raises")
    elif path != "/":
        status = "404 Not Found"
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
