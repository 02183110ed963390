"""A thread that sleeps for 0.2 ms again and again, beside threads that compute.

    waiting_crowd.py THREADS [measured]

All computing threads but one wait for the GIL at any time. Within the window the main thread sleeps
again and again; each sleep drops the GIL and takes it. The program answers with the seconds by
which each sleep took longer than asked for, and with the processor time of the process in each
second. If the GIL is measured, it then ends the computing, keeps the threads, and answers also with
the seconds that a snapshot and the text of its report take.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import window

STACK_BYTES = 128 * 1024
SLEEP_S = 0.0002
REPETITIONS = 5
# `priority` takes a thread for CPU-bound after a millisecond with the GIL. Each thread has to have
# computed for so long before the window begins.
WARM_UP_S = 0.002


def main() -> None:
    count = int(sys.argv[1])
    threading.stack_size(STACK_BYTES)
    begins, ends, is_over = threading.Event(), threading.Event(), False
    idle = threading.Semaphore(0)

    def compute() -> None:
        begins.wait()
        while not is_over:
            pass
        idle.release()
        ends.wait()

    for _ in range(count):
        threading.Thread(target=compute, daemon=True).start()
    begins.set()
    time.sleep(1 + count * WARM_UP_S)
    window.say(threads=count)
    times = window.hear_window()
    window.sleep_until(times.begin_ns)
    began_s, cpu_before_s = time.monotonic(), time.process_time()
    late_s = []
    while time.monotonic_ns() < times.end_ns:
        late_s.append(seconds_of(lambda: time.sleep(SLEEP_S)) - SLEEP_S)
    cpu_cores = (time.process_time() - cpu_before_s) / (time.monotonic() - began_s)
    facts = {"late_s": late_s, "cpu_cores": cpu_cores}
    is_over = True
    for _ in range(count):
        idle.acquire()
    if sys.argv[2:] == ["measured"]:
        from headway import gil

        snapshot = gil.snapshot()
        facts["snapshot_s"] = min(seconds_of(gil.snapshot) for _ in range(REPETITIONS))
        facts["report_s"] = min(seconds_of(lambda: str(snapshot)) for _ in range(REPETITIONS))
    window.answer(**facts)


def seconds_of(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()
