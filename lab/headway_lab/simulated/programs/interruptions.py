"""How often and for how long a core is taken from a process that computes, by interrupts or by a
hypervisor, and not by the kernel for another process.

    interruptions.py CORE MILLISECONDS

It reads the clock without a pause. Where that jumps and the kernel counts no switch, nobody but
the machine itself stood in the way.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import window

# A shorter gap may be the loop's own.
LEAST_NS = 20_000


def switches() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nivcsw + used.ru_nvcsw


def watch(until_ns: int) -> tuple[list[int], int]:
    """Interruptions, and the time on the core."""
    found = []
    before = switches()
    began_ns = last_ns = time.monotonic_ns()
    elsewhere_ns = 0
    while last_ns < until_ns:
        now_ns = time.monotonic_ns()
        if now_ns - last_ns > LEAST_NS:
            after = switches()
            if after == before:
                found.append(now_ns - last_ns)
            else:
                elsewhere_ns += now_ns - last_ns
            before = after
            now_ns = time.monotonic_ns()
        last_ns = now_ns
    return found, last_ns - began_ns - elsewhere_ns


def main() -> None:
    core, milliseconds = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    found, watched_ns = watch(time.monotonic_ns() + milliseconds * 1_000_000)
    window.answer(stolen_ns=found, watched_ns=watched_ns)


if __name__ == "__main__":
    main()
