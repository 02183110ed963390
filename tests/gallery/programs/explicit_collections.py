"""A thread that calls gc.collect() after each piece of work."""

import gc
import threading
import time

END_S = time.monotonic() + 4
OLD = [[number] for number in range(600_000)]


def batch():
    while time.monotonic() < END_S:
        gc.collect()
        time.sleep(0.02)


threading.Thread(target=batch, name="batch").start()
while time.monotonic() < END_S:
    time.sleep(0.001)
