"""How long a process that sleeps takes to run again, and what waking it costs who does it.

    wake_ups.py WAKER_CORE SLEEPER_CORE IDLE_US COUNT

The sleeper is a child that waits for an event and answers with another. Between an answer and the
next event the waker computes for IDLE_US, long enough for the sleeper to be asleep, so that the
sleeper's core is idle for as long if it is another. On one and the same core (IDLE_US 0) the two
take turns. `alone_ns` and `call_alone_ns` are the same calls by one process with nobody to wake.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time

import window

ONE = 1
TIME = struct.Struct("q")
clock_ns = time.monotonic_ns


def sleep_and_answer(event: int, answer: int, woken: mmap.mmap, count: int) -> None:
    for _ in range(count):
        os.eventfd_read(event)
        TIME.pack_into(woken, 0, clock_ns())
        os.eventfd_write(answer, ONE)


def wake(
    event: int, answer: int, woken: mmap.mmap, idle_ns: int, count: int
) -> dict[str, list[int]]:
    wake_ups_ns, calls_ns, rounds_ns = [], [], []
    for _ in range(count):
        until_ns = clock_ns() + idle_ns
        while clock_ns() < until_ns:
            pass
        began_ns = clock_ns()
        os.eventfd_write(event, ONE)
        called_ns = clock_ns()
        os.eventfd_read(answer)
        ended_ns = clock_ns()
        wake_ups_ns.append(TIME.unpack_from(woken)[0] - began_ns)
        calls_ns.append(called_ns - began_ns)
        rounds_ns.append(ended_ns - began_ns)
    return {"wake_ups_ns": wake_ups_ns, "calls_ns": calls_ns, "rounds_ns": rounds_ns}


def call_alone(event: int, woken: mmap.mmap, count: int) -> dict[str, list[int]]:
    calls_ns, pairs_ns = [], []
    for _ in range(count):
        began_ns = clock_ns()
        os.eventfd_write(event, ONE)
        called_ns = clock_ns()
        os.eventfd_read(event)
        TIME.pack_into(woken, 0, clock_ns())
        calls_ns.append(called_ns - began_ns)
        pairs_ns.append(TIME.unpack_from(woken)[0] - began_ns)
    return {"alone_ns": pairs_ns, "call_alone_ns": calls_ns}


def main() -> None:
    waker_core, sleeper_core, idle_us, count = map(int, sys.argv[1:])
    woken = mmap.mmap(-1, TIME.size)
    event, answer = os.eventfd(0), os.eventfd(0)
    if os.fork() == 0:
        os.sched_setaffinity(0, {sleeper_core})
        sleep_and_answer(event, answer, woken, count)
        window.leave()
    os.sched_setaffinity(0, {waker_core})
    found = wake(event, answer, woken, idle_us * 1_000, count)
    os.wait()
    window.answer(**found, **call_alone(event, woken, count))


if __name__ == "__main__":
    main()
