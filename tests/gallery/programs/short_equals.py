"""Forty threads that need the GIL for a fifth of a millisecond at a time: together, all of it."""

import threading
import time

END_S = time.monotonic() + 3


def work():
    while time.monotonic() < END_S:
        sum(range(8_000))
        time.sleep(0.002)


for number in range(40):
    threading.Thread(target=work, name=f"work-{number}").start()
