"""Threads that are hard on a scheduler of the GIL, one kind of them at a time.

    pathological_threads.py CASE

A thread is a loop; each turn is counted and, in threads that wait for something, how much longer it
took than the absence that the thread wanted: that is its wait. A *piece* of CPU-bound work takes
some 0.1 ms. All of a case's threads run from the warm-up on.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable

import window

PIECE_LOOPS = 5_000
NAP_S = 0.0002
NAP_NS = 200_000

# A turn returns how long it waited, in nanoseconds, or None if waiting is not what it does.
Turn = Callable[[], "int | None"]


def compute(loops: int = PIECE_LOOPS) -> None:
    for _ in range(loops):
        pass


def nap() -> int:
    began_ns = time.monotonic_ns()
    time.sleep(NAP_S)
    return time.monotonic_ns() - began_ns - NAP_NS


def nap_and_compute(loops: int) -> Turn:
    def turn() -> int:
        waited_ns = nap()
        compute(loops)
        return waited_ns

    return turn


def spin() -> int:
    began_ns = time.monotonic_ns()
    time.sleep(0)
    return time.monotonic_ns() - began_ns


class Turncoat:
    """I/O-bound for 20 turns, CPU-bound for 100, and again."""

    def __init__(self) -> None:
        self._turns = 0

    def __call__(self) -> int | None:
        self._turns += 1
        if self._turns % 120 < 20:
            return nap()
        compute()
        return None


DATA = bytes(20_000)
LINE = re.compile(r"(a+)+b")
null = os.open(os.devnull, os.O_WRONLY)
# Each drops the GIL for a few microseconds, but for the sleep, which the kernel makes longer.
SHORT_DROPS: dict[str, Callable[[], object]] = {
    "hashlib": lambda: hashlib.sha256(DATA[:2_100]).digest(),
    "zlib": lambda: zlib.crc32(DATA[:8_000]),
    "write": lambda: os.write(null, b"x"),
    "sleep0": lambda: time.sleep(0),
}


def calls(*steps: Callable[[], object]) -> Turn:
    def turn() -> None:
        for step in steps:
            step()

    return turn


def long_call() -> None:
    """Some milliseconds of C code that keeps the GIL and answers no drop request."""
    LINE.match("a" * 16)


def ping_pong() -> dict[str, Turn]:
    """Two queues; a round trip is ping's wait."""
    there: queue.SimpleQueue[int] = queue.SimpleQueue()
    back: queue.SimpleQueue[int] = queue.SimpleQueue()

    def ping() -> int:
        began_ns = time.monotonic_ns()
        there.put(0)
        back.get()
        return time.monotonic_ns() - began_ns

    return {"io-ping": ping, "pong": calls(lambda: back.put(there.get())), "hog": compute}


def several(count: int, name: str, turn: Turn) -> dict[str, Turn]:
    return {f"{name}-{index}": turn for index in range(count)}


# By case, its threads. Those whose names begin with "io" are to be served soon, or pretend to be;
# "hog" computes.
CASES: dict[str, Callable[[], dict[str, Turn]]] = {
    "alone": lambda: {"hog": compute},
    "many_io": lambda: {**several(64, "io", nap_and_compute(PIECE_LOOPS // 10)), "hog": compute},
    "saturated": lambda: {**several(64, "io", nap_and_compute(PIECE_LOOPS // 3)), "hog": compute},
    "herd": lambda: several(32, "io", nap_and_compute(PIECE_LOOPS // 10)),
    **{
        f"masquerade_{kind}": lambda drop=drop: {  # type: ignore[misc]
            "io-masquerader": calls(compute, drop),
            "hog": compute,
        }
        for kind, drop in SHORT_DROPS.items()
    },
    "ping_pong": ping_pong,
    "turns_cpu_bound": lambda: {"io-turncoat": Turncoat(), "io": nap, "hog": compute},
    "spinners": lambda: {**several(2, "io-spinner", spin), "hog": compute},
    "more_than_cores": lambda: several(4 * (os.cpu_count() or 1), "hog", compute),
    "tiny_calls": lambda: several(8, "io", calls(SHORT_DROPS["zlib"])),
    "short_windows": lambda: several(
        4, "io", calls(lambda: hashlib.sha256(DATA).digest(), lambda: compute(PIECE_LOOPS // 3))
    ),
    "long_call": lambda: {"io": nap, "hog": long_call},
}


def main() -> None:
    threads = CASES[sys.argv[1]]()
    counts = dict.fromkeys(threads, 0)
    waits: list[tuple[int, int]] = []

    def work(name: str, turn: Turn) -> None:
        while True:
            waited_ns = turn()
            # Only this thread writes its count.
            counts[name] += 1
            if waited_ns is not None:
                waits.append((time.monotonic_ns(), waited_ns))

    window.say()
    times = window.hear_window()
    for name, turn in threads.items():
        threading.Thread(target=work, args=(name, turn), name=name, daemon=True).start()
    window.sleep_until(times.begin_ns)
    began_ns, before = time.monotonic_ns(), counts.copy()
    # This thread, too, may have waited for long. What is measured is as long as it was to be.
    window.sleep_until(began_ns + times.end_ns - times.begin_ns)
    ended_ns, after = time.monotonic_ns(), counts.copy()
    within = [waited_ns for at_ns, waited_ns in waits.copy() if began_ns <= at_ns <= ended_ns]
    seconds = (ended_ns - began_ns) / window.NS
    window.answer(
        turns_per_s={name: (after[name] - before[name]) / seconds for name in threads},
        waits_ns=within,
    )


if __name__ == "__main__":
    main()
