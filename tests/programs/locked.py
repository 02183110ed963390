"""Threads of a free-threaded build that wait with known stacks: `locked.py CASE` prints the
profile's table, its stacks, and the waits that the meter counted meanwhile, as JSON."""

from __future__ import annotations

import gc
import json
import queue
import sys
import threading
import time
from collections.abc import Callable

from headway import gil
from headway.profile import sides, table

LOCK = threading.Lock()


def wait_for_thirty() -> None:
    with LOCK:
        pass


def wait_for_seventy() -> None:
    with LOCK:
        pass


def held_for(seconds: float, wait: Callable[[], None]) -> None:
    """Another thread waits, by `wait`, while this one holds the lock for so long."""
    LOCK.acquire()
    waiter = threading.Thread(target=wait, name="waiter")
    waiter.start()
    time.sleep(seconds)
    LOCK.release()
    waiter.join()


def lock() -> None:
    for _ in range(5):
        held_for(0.03, wait_for_thirty)
        held_for(0.07, wait_for_seventy)


def consume(tasks: queue.SimpleQueue[int]) -> None:
    while tasks.get():
        pass


def events() -> None:
    tasks: queue.SimpleQueue[int] = queue.SimpleQueue()
    consumer = threading.Thread(target=consume, args=(tasks,), name="consumer")
    consumer.start()
    for number in reversed(range(6)):
        time.sleep(0.05)
        tasks.put(number)
    consumer.join()


def compute(is_done: threading.Event) -> None:
    while not is_done.is_set():
        sum(range(100))


def stopped_world() -> None:
    is_done = threading.Event()
    computing = threading.Thread(target=compute, args=(is_done,), name="computing")
    computing.start()
    garbage = [[number] for number in range(200_000)]
    for _ in range(10):
        gc.collect()
    is_done.set()
    computing.join()
    del garbage


CASES = {case.__name__: case for case in (lock, events, stopped_world)}


def main() -> None:
    gil.install()
    profiling = gil.profile()
    profiling.start()
    before = gil.snapshot()
    CASES[sys.argv[1]]()
    after = gil.snapshot()
    profile = profiling.stop()
    waits = (after - before).to_dict()["free_threading"]
    side = sides.present(profile)
    print(
        json.dumps(
            {
                "sides": list(side),
                "table": table.tabulate(profile).to_dict(),
                "stacks": [
                    [[frame.function for frame in charge.stack], charge.thread, charge.waited_ns]
                    for charge in side[sides.WAITERS]
                ],
                "totals": {total.gil: total.waited_ns / 1e9 for total in profile.totals},
                "counted": {kind: waits[kind]["sum_s"] for kind in ("parked", "suspended")}
                | {"stopping": waits["stopping"]["sum_s"]},
            }
        )
    )


if __name__ == "__main__":
    main()
