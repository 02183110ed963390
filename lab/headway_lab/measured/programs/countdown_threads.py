"""Counts down from a number that is divided among threads, and reports how far they came and in
which time.

    countdown_threads.py THREADS DECREMENTS SWITCH_INTERVAL_S [exact]

They stop at zero, or at the window's end. With `exact`, timers end when they are due. Without it
the kernel may let them end up to 50 microseconds late, so that several end together.
"""

from __future__ import annotations

import sys
import threading
import time

import window

# The number of decrements between two checks of the time.
CHUNK = 10_000
PR_SET_TIMERSLACK = 29  # <linux/prctl.h>


def countdown(n: int) -> None:
    while n > 0:
        n -= 1


class Part(threading.Thread):
    """One thread's share. Only this thread writes `left`."""

    def __init__(self, index: int, decrements: int, time_is_over: threading.Event) -> None:
        super().__init__(name=f"countdown-{index}")
        self.left = decrements
        self._time_is_over = time_is_over

    def run(self) -> None:
        left = self.left
        while left > 0:
            chunk = min(left, CHUNK)
            countdown(chunk)
            left -= chunk
            if self._time_is_over.is_set():
                break
        self.left = left


def make_timers_exact() -> None:
    """Makes the timers of this thread exact, and those of all threads that it starts."""
    # Some builds of CPython lack ctypes, and the rest of this program does not need it.
    import ctypes

    if ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1):
        raise OSError("prctl(PR_SET_TIMERSLACK) failed")


def main() -> None:
    threads, decrements, switch_interval_s, *more = sys.argv[1:]
    sys.setswitchinterval(float(switch_interval_s))
    if more == ["exact"]:
        make_timers_exact()
    time_is_over = threading.Event()
    share = int(decrements) // int(threads)
    parts = [Part(index, share, time_is_over) for index in range(int(threads))]
    window.say()
    times = window.hear_window()
    window.sleep_until(times.begin_ns)
    began_ns = time.monotonic_ns()
    for part in parts:
        part.start()
    for part in parts:
        part.join(max(0, times.end_ns - time.monotonic_ns()) / window.NS)
    time_is_over.set()
    for part in parts:
        part.join()
    seconds = (time.monotonic_ns() - began_ns) / window.NS
    window.answer(seconds=seconds, decrements=sum(share - part.left for part in parts))


if __name__ == "__main__":
    main()
