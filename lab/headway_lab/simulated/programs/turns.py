"""How long each of two processes that compute on one core runs before the other has its turn.

    turns.py CORE MILLISECONDS

Each reads the clock without a pause: where it jumps, somebody else had the core.
"""

from __future__ import annotations

import json
import os
import sys
import time

import window

# Shorter ones are interrupts.
GAP_NS = 300_000


def turns_ns(until_ns: int) -> list[int]:
    """Those that were seen to begin and to end."""
    found: list[int] = []
    began_ns, last_ns = 0, time.monotonic_ns()
    while last_ns < until_ns:
        now_ns = time.monotonic_ns()
        if now_ns - last_ns > GAP_NS:
            if began_ns:
                found.append(last_ns - began_ns)
            began_ns = now_ns
        last_ns = now_ns
    return found


def main() -> None:
    core, milliseconds = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    until_ns = time.monotonic_ns() + milliseconds * 1_000_000
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(turns_ns(until_ns)).encode())
        window.leave()
    os.close(writer)
    found = turns_ns(until_ns)
    with open(reader) as told:
        found += json.load(told)
    os.wait()
    window.answer(turns_ns=found)


if __name__ == "__main__":
    main()
