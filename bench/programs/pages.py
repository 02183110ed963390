"""A WSGI application with a light page, computing ones of pure Python, and two about its GIL.

`/heavy` goes PAGE_LOOPS times round a loop, an environment variable: fixed work, whatever the
clock says. `pages.py SECONDS` finds how many loops take that long.

`/fixed` and `/deadline` are the two readings of a published workload, 3 ms of Python, 1 ms of
waiting and a body of 1 KB: FIXED_LOOPS times round the loop, or round it until 3 ms have passed.

SWITCH_INTERVAL, in seconds, is for servers that have no such option of their own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

PAGE_LOOPS = int(os.environ.get("PAGE_LOOPS", "0"))
FIXED_LOOPS = int(os.environ.get("FIXED_LOOPS", "0"))
DEADLINE_S = 0.003
DEADLINE_LOOPS = 20
WAIT_S = 0.001
BODY = "x" * 1024
# The other threads and processes are to be reached too, by requests sent at the same time.
GIL_PAGE_S = 0.02
TRIALS = 50

if "SWITCH_INTERVAL" in os.environ:
    sys.setswitchinterval(float(os.environ["SWITCH_INTERVAL"]))

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def compute(loops: int) -> int:
    total = 0
    for number in range(loops):
        total += number * number
    return total


def compute_until_deadline() -> None:
    deadline_s = time.perf_counter() + DEADLINE_S
    while time.perf_counter() < deadline_s:
        compute(DEADLINE_LOOPS)


def gil_facts() -> dict[str, Any]:
    """How this process's GIL is scheduled; what its books say, unless this is plain python."""
    time.sleep(GIL_PAGE_S)
    report = None
    if "headway.meter.engine" in sys.modules:
        from headway import gil

        report = gil.snapshot().to_dict() if gil.is_installed() else None
    return {
        "pid": os.getpid(),
        "switch_interval": sys.getswitchinterval(),
        "policy": report["policy"] if report else None,
        "gil": report["gils"][0] if report else None,
    }


def interpreter_facts() -> dict[str, Any]:
    """Which interpreter answers: of one process, each has its own sys.modules."""
    time.sleep(GIL_PAGE_S)
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {"pid": os.getpid(), "modules": id(sys.modules), "gil": gil}


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/heavy":
        body = str(compute(PAGE_LOOPS))
    elif path == "/fixed":
        compute(FIXED_LOOPS)
        time.sleep(WAIT_S)
        body = BODY
    elif path == "/deadline":
        compute_until_deadline()
        time.sleep(WAIT_S)
        body = BODY
    elif path == "/gil":
        body = json.dumps(gil_facts())
    elif path == "/interpreter":
        body = json.dumps(interpreter_facts())
    else:
        body = "hello"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body.encode()]


def main() -> None:
    """The fastest of a few trials counts: others shared the machine."""
    # Of a benchmark, not of an application that a server imports.
    import window

    seconds, loops = float(sys.argv[1]), 100_000
    trials_s = []
    for _ in range(TRIALS):
        began = time.perf_counter()
        compute(loops)
        trials_s.append(time.perf_counter() - began)
    window.answer(loops=round(loops * seconds / min(trials_s)))


if __name__ == "__main__":
    main()
