"""A thread that sleeps, beside one that computes."""

import threading
import time

END_S = time.monotonic() + 3


def compute():
    while time.monotonic() < END_S:
        sum(range(1000))


threading.Thread(target=compute, name="compute").start()
while time.monotonic() < END_S:
    time.sleep(0.001)
