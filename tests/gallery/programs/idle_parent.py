"""A parent that sleeps, as a master of worker processes does, and a child whose GIL is full."""

import os
import threading
import time

END_S = time.monotonic() + 4


def compute():
    while time.monotonic() < END_S:
        sum(range(1000))


if os.fork() == 0:
    for number in range(4):
        threading.Thread(target=compute, name=f"compute-{number}").start()
else:
    time.sleep(4)
    os.wait()
