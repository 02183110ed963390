"""Pages whose threads are to be looked at: they wait, compute, or keep the GIL in a call of C code.

A number of seconds comes as the query.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterable
from typing import Any


def wait_for_a_while(seconds: float) -> None:
    time.sleep(seconds)


def compute_for_a_while(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def hold_for_a_while(seconds: float) -> None:
    """A call of C code that keeps the GIL. A signal ends the sleep, as it would not a regular
    expression's search, so it goes on."""
    # Not at the top: in 3.12 no interpreter with a GIL of its own can import it.
    import ctypes

    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(seconds * 1e9)
    deadline = (ctypes.c_long * 2)(*divmod(end, 10**9))
    sleep_until = ctypes.PyDLL(None).clock_nanosleep
    while sleep_until(time.CLOCK_MONOTONIC, 1, deadline, None):
        pass


def search_for_long(_: float) -> None:
    re.match(r"(1+)+$", "1" * 22 + "x")


def collect_garbage(_: float) -> None:
    for _ in range(5_000):
        cycle: list[object] = []
        cycle.append(cycle)
    gc.collect()


PAGES: dict[str, Callable[[float], None]] = {
    "/wait": wait_for_a_while,
    "/compute": compute_for_a_while,
    "/hold": hold_for_a_while,
    "/search": search_for_long,
    "/collect": collect_garbage,
}


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    path, seconds = environ["PATH_INFO"], float(environ["QUERY_STRING"] or 0)
    if path in PAGES:
        PAGES[path](seconds)
    body = environ["wsgi.input"].read() or b"done\n"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body]
