"""Measures a drop of a GIL that no thread waits for, and the take after it.

    drops.py CORE TRIALS

ctypes calls the same function of libc with and without that. Each trial is thousands of calls.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable

import window

CALLS = 5_000
drops_gil: Callable[[int], int] = ctypes.CDLL(None).abs
keeps_gil: Callable[[int], int] = ctypes.PyDLL(None).abs


def call_ns(function: Callable[[int], int]) -> float:
    began_ns = time.thread_time_ns()
    for _ in range(CALLS):
        function(1)
    return (time.thread_time_ns() - began_ns) / CALLS


def main() -> None:
    core, trials = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    pairs = [(call_ns(drops_gil), call_ns(keeps_gil)) for _ in range(trials)]
    window.answer(drop_and_take_ns=[drops - keeps for drops, keeps in pairs])


if __name__ == "__main__":
    main()
