"""A WSGI application with a light page, a heavy one of pure Python, and one about its GIL.

`/heavy` goes PAGE_LOOPS times round a loop, an environment variable: fixed work, whatever the
clock says. `pages.py SECONDS` finds how many loops take that long.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import window

PAGE_LOOPS = int(os.environ.get("PAGE_LOOPS", "0"))
TRIALS = 15

StartResponse = Callable[[str, list[tuple[str, str]]], object]


def compute(loops: int) -> int:
    total = 0
    for number in range(loops):
        total += number * number
    return total


def policy() -> str | None:
    """The policy of this process's GIL; None in plain python."""
    gil = sys.modules.get("headway.gil")
    if gil is None or not gil.is_installed():
        return None
    found: str = gil.snapshot().to_dict()["policy"]
    return found


def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/heavy":
        body = str(compute(PAGE_LOOPS))
    elif path == "/policy":
        body = json.dumps(policy())
    else:
        body = "hello"
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body.encode()]


def main() -> None:
    """The fastest of a few trials counts: others shared the machine."""
    seconds, loops = float(sys.argv[1]), 100_000
    trials_s = []
    for _ in range(TRIALS):
        began = time.perf_counter()
        compute(loops)
        trials_s.append(time.perf_counter() - began)
    window.answer(loops=round(loops * seconds / min(trials_s)))


if __name__ == "__main__":
    main()
