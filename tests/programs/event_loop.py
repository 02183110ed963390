"""An event loop with stalls whose causes and durations are known.

    python event_loop.py asyncio|uvloop|trio CAUSE...

Causes: sleep, python, c, thread. Prints as JSON, in seconds, how long the stalls of each cause took
by the program's own clock, and for how long the loop's thread was watched.
"""

from __future__ import annotations

import json
import sys
import threading
import time

STALL_S = 0.3
STALLS = 4


def sum_in_c(number):
    return sum(range(number))


def calibrated():
    """An argument with which `sum_in_c` takes about as long as a stall."""
    number = 1_000_000
    began = time.perf_counter()
    sum_in_c(number)
    return int(number * STALL_S / (time.perf_counter() - began))


NUMBER = calibrated()


def compute():
    end = time.perf_counter() + STALL_S
    while time.perf_counter() < end:
        pass


async def sleeping():
    time.sleep(STALL_S)


async def computing():
    compute()


async def calling_c():
    sum_in_c(NUMBER)


STALLING = {"sleep": sleeping, "python": computing, "c": calling_c}
stalled = dict.fromkeys((*STALLING, "thread"), 0.0)
is_over = threading.Event()


def keep_the_gil():
    """Calls of C that keep the GIL for half a stall, with pauses."""
    while not is_over.wait(0.05):
        sum_in_c(NUMBER // 2)


async def main(sleep, causes):
    if "thread" in causes:
        threading.Thread(target=keep_the_gil, name="hog").start()
    for _ in range(STALLS):
        for cause, stall in STALLING.items():
            await sleep(0.05)
            if cause in causes:
                began = time.perf_counter()
                await stall()
                stalled[cause] += time.perf_counter() - began
    end = time.perf_counter() + 1 if "thread" in causes else 0
    while time.perf_counter() < end:
        await sleep(0.005)
    is_over.set()


def run(kind, causes):
    if kind == "trio":
        import trio

        trio.run(main, trio.sleep, causes)
        return
    import asyncio

    if kind == "uvloop":
        import uvloop

        uvloop.run(main(asyncio.sleep, causes))
    else:
        asyncio.run(main(asyncio.sleep, causes))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
    print(json.dumps(stalled))
