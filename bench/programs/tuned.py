"""WSGI application with pages of known work, for tune.py.

COMPUTING=1 in the environment starts a thread that computes all the time, as a job of the service
would.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

# The units of work that take about a millisecond.
UNITS_PER_MS = 12
STEPS = 8


def compute(ms: float) -> None:
    for _ in range(max(1, round(ms * UNITS_PER_MS))):
        sum(number * number for number in range(1000))


def light() -> None:
    compute(0.2)


def work() -> None:
    compute(10)


def heavy() -> None:
    compute(150)


def wait() -> None:
    time.sleep(0.005)


def steps() -> None:
    """Drops the GIL between short computations, as a page that reads a few files."""
    for _ in range(STEPS):
        compute(0.1)
        os.stat("/")


def compute_for_ever() -> None:
    while True:
        compute(1)


PAGES = {f"/{page.__name__}": page for page in (light, work, heavy, wait, steps)}

if os.environ.get("COMPUTING"):
    threading.Thread(target=compute_for_ever, daemon=True).start()


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    page = PAGES.get(environ["PATH_INFO"])
    start_response("200 OK" if page else "404 Not Found", [("Content-Type", "text/plain")])
    if page:
        page()
    return [b"done\n"]
