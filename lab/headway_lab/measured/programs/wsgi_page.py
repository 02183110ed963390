"""A WSGI application whose page takes 3 ms of Python, 1 ms of waiting and 1 KB, in two readings.

`/deadline` computes until 3 ms have passed on the clock, also while other threads have the GIL;
`/fixed` goes FIXED_LOOPS times round a loop, an environment variable, whatever the clock says.

    wsgi_page.py LOOPS

says how long so many loops take one thread that has a processor to itself. Knows nothing of who
serves it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import window

FIXED_LOOPS = int(os.environ.get("FIXED_LOOPS", "0"))
COMPUTING_S = 0.003
# Between two looks at the clock.
DEADLINE_LOOPS = 20
WAITING_S = 0.001
BODY = b"x" * 1024
TRIALS = 25

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def compute(loops: int) -> int:
    total = 0
    for number in range(loops):
        total += number * number
    return total


def compute_fixed_work() -> None:
    compute(FIXED_LOOPS)


def compute_until_deadline() -> None:
    deadline_s = time.perf_counter() + COMPUTING_S
    while time.perf_counter() < deadline_s:
        compute(DEADLINE_LOOPS)


WORKLOADS = {"/deadline": compute_until_deadline, "/fixed": compute_fixed_work}


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    computation = WORKLOADS.get(environ["PATH_INFO"])
    if computation is not None:
        computation()
        time.sleep(WAITING_S)
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(BODY)))]
    start_response("200 OK", headers)
    return [BODY]


# Where mod_wsgi looks for it.
application = app


def main() -> None:
    """The least CPU time of a few trials counts: others share the machine."""
    loops = int(sys.argv[1])
    trials_s = []
    for _ in range(TRIALS):
        began_s = time.thread_time()
        compute(loops)
        trials_s.append(time.thread_time() - began_s)
    window.answer(seconds=min(trials_s))


if __name__ == "__main__":
    main()
