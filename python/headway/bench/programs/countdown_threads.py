"""Counts down from a number that its threads share out, and says how long they took.

countdown_threads.py THREADS DECREMENTS [SWITCH_INTERVAL_S]
"""

from __future__ import annotations

import sys
import threading
import time

import window


def countdown(n: int) -> None:
    while n > 0:
        n -= 1


def main() -> None:
    threads, decrements = int(sys.argv[1]), int(sys.argv[2])
    if sys.argv[3:]:
        sys.setswitchinterval(float(sys.argv[3]))
    workers = [
        threading.Thread(target=countdown, args=(decrements // threads,), name=f"countdown-{index}")
        for index in range(threads)
    ]
    window.say()
    window.sleep_until(window.hear_window().begin_ns)
    began_ns = time.monotonic_ns()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    window.answer(seconds=(time.monotonic_ns() - began_ns) / window.NS)


if __name__ == "__main__":
    main()
