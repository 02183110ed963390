"""Waits for the GIL whose length the program knows, for scripts/interpreter_matrix.py.

A thread releases a lock for which the main thread waits, and then computes for a known time
without dropping the GIL, because the switch interval is longer. Prints the number of waits and the
sum of their times. Uses no module that some builds of CPython lack.
"""

import sys
import threading
import time

WAITS = 20
HOLD_NS = 20_000_000

sys.setswitchinterval(100.0)
released_ns = 0


def hold(lock):  # type: (threading.Lock) -> None
    global released_ns
    time.sleep(0.002)
    released_ns = time.monotonic_ns()
    lock.release()
    while time.monotonic_ns() < released_ns + HOLD_NS:
        pass


def main() -> None:
    total_ns = 0
    for _ in range(WAITS):
        lock = threading.Lock()
        lock.acquire()
        holder = threading.Thread(target=hold, args=(lock,), name="holder")
        holder.start()
        lock.acquire()
        total_ns += time.monotonic_ns() - released_ns
        holder.join()
    print(WAITS, total_ns)


if __name__ == "__main__":
    main()
