"""A program with a thread that computes and a thread that sleeps between short steps."""

import threading
import time

DEADLINE = time.monotonic() + 2


def compute() -> None:
    while time.monotonic() < DEADLINE:
        sum(range(1000))


def step() -> None:
    while time.monotonic() < DEADLINE:
        time.sleep(0.001)


threads = [threading.Thread(target=each, name=each.__name__) for each in (compute, step)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
