"""Stalls of an event loop, and what a program notes of them itself.

The server programs beside this one and a Jupyter kernel use it. `begin` has a task wake the loop
every 10 ms, as the events of a busy program do, and note in the file of STALLS_LOG when it came
late; asyncio's debug mode writes there too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable

BEAT_S = 0.01
# As asyncio's debug mode.
LATE_S = 0.1
# How long the stall of each cause takes.
SLEEP_S, PYTHON_S, C_S, THREAD_S = 0.2, 0.25, 0.3, 0.15
SAMPLE = 1_000_000

beating: set[asyncio.Task[None]] = set()


def sum_in_c(number: int) -> int:
    return sum(range(number))


def sums_per_s() -> float:
    """The highest rate of some samples, so that another program's turn does not count."""
    taken_s = []
    for _ in range(5):
        began_s = time.perf_counter()
        sum_in_c(SAMPLE)
        taken_s.append(time.perf_counter() - began_s)
    return SAMPLE / min(taken_s)


SUMS_PER_S = sums_per_s()


def compute() -> None:
    end_s = time.perf_counter() + PYTHON_S
    while time.perf_counter() < end_s:
        pass


def hold_the_gil() -> None:
    sum_in_c(int(THREAD_S * SUMS_PER_S))


async def sleep() -> None:
    time.sleep(SLEEP_S)


async def python() -> None:
    compute()


async def c() -> None:
    sum_in_c(int(C_S * SUMS_PER_S))


async def thread() -> None:
    await asyncio.to_thread(hold_the_gil)


STALLS: dict[str, Callable[[], Awaitable[None]]] = {
    "sleep": sleep,
    "python": python,
    "c": c,
    "thread": thread,
}


async def beat(logger: logging.Logger) -> None:
    while True:
        due_s = time.time() + BEAT_S
        await asyncio.sleep(BEAT_S)
        late_s = time.time() - due_s
        if late_s >= LATE_S:
            logger.warning("heartbeat late by %.3f s", late_s)


class Lines(logging.Formatter):
    """A line of JSON for each message: what logged it, when, and the text."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps([record.name, record.created, record.getMessage()])


async def begin() -> None:
    """To be called in the event loop. Does nothing without STALLS_LOG."""
    file = os.environ.get("STALLS_LOG")
    if not file:
        return
    handler = logging.FileHandler(file)
    handler.setFormatter(Lines())
    for name in ("asyncio", "heartbeat"):
        logging.getLogger(name).addHandler(handler)
    beating.add(asyncio.create_task(beat(logging.getLogger("heartbeat"))))
