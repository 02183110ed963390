"""CPU-bound threads, and the amount of work that they do.

    computation.py THREADS [WORKLOAD [SWITCH_INTERVAL_S]]

This program only computes. It measures the work of threads that are alone, or in a process of their
own. Without a workload (see `workloads`) the work is the convoy's endless loop of additions and
subtractions.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import window
from workloads import WORKLOADS

LOOPS = 1_000
ENGINE = "headway.meter.engine"


def add_and_subtract() -> None:
    n = 0
    for _ in range(LOOPS):
        n += 1
        n -= 1


class Computation:
    """Threads that call `work` until they are stopped, and the number of their calls.

    They are created at the beginning and wait, because starting them one after another takes as
    many turns at the GIL, each longer than the one before.
    """

    def __init__(self, threads: int, work: Callable[[], object] = add_and_subtract) -> None:
        self._work = work
        self._started = threading.Event()
        self._stopping = False
        self._done = [0] * threads
        self._threads = [
            threading.Thread(target=self._run, args=(index,), name=f"compute-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def start(self) -> None:
        self._started.set()

    def stop(self) -> None:
        self._stopping = True
        for thread in self._threads:
            thread.join()

    def done(self) -> int:
        return sum(self._done)

    def _run(self, index: int) -> None:
        self._started.wait()
        self._compute(index)

    def _compute(self, index: int) -> None:
        work = self._work
        while not self._stopping:
            work()
            # Only this thread writes this element.
            self._done[index] += 1


def measure(times: window.Window, computation: Computation) -> dict[str, Any]:
    """The calls of the work a second within the window, and the process's CPU time for each call.
    Under `headway run` also the GIL report."""
    # Under `headway run` the engine is loaded. Plain python must not load it.
    gil = importlib.import_module("headway.gil") if ENGINE in sys.modules else None
    window.sleep_until(times.begin_ns)
    before = gil.snapshot() if gil else None
    began_ns, cpu_before_s = time.monotonic_ns(), time.process_time()
    if began_ns >= times.end_ns:
        raise RuntimeError("the threads started only after the window's end")
    done_before = computation.done()
    window.sleep_until(times.end_ns)
    ended_ns, cpu_s = time.monotonic_ns(), time.process_time() - cpu_before_s
    done = computation.done()
    after = gil.snapshot() if gil else None
    computation.stop()
    return {
        "work_per_s": (done - done_before) / (ended_ns - began_ns) * window.NS,
        "cpu_per_work_s": cpu_s / max(1, done - done_before),
        "gil": (after - before).to_dict() if after else None,
    }


def control(
    cpu_threads: int, work: Callable[[], object] = add_and_subtract, **ready: Any
) -> dict[str, Any]:
    """Runs a program up to its answer; its threads compute from the warm-up on."""
    return conduct(Computation(cpu_threads, work), **ready)


def conduct(computation: Computation, **ready: Any) -> dict[str, Any]:
    window.say(**ready)
    times = window.hear_window()
    computation.start()
    return measure(times, computation)


def main() -> None:
    work = WORKLOADS[sys.argv[2]] if sys.argv[2:] else add_and_subtract
    if sys.argv[3:]:
        sys.setswitchinterval(float(sys.argv[3]))
    computation = Computation(int(sys.argv[1]), work)
    window.say()
    times = window.hear_window()
    computation.start()
    window.sleep_until(times.begin_ns)
    # No other process uses this window. If the GIL was not available at its begin, it starts later,
    # and is as long.
    late_ns = max(0, time.monotonic_ns() - times.begin_ns)
    window.answer(**measure(times._replace(end_ns=times.end_ns + late_ns), computation))


if __name__ == "__main__":
    main()
