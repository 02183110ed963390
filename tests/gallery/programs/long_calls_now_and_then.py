"""A thread that computes in Python, and once a second in one call of C code."""

import json
import threading
import time

END_S = time.monotonic() + 5
ROWS = list(range(1_500_000))


def compute():
    last_s = time.monotonic()
    while time.monotonic() < END_S:
        if time.monotonic() - last_s > 1:
            json.dumps(ROWS)
            last_s = time.monotonic()


threading.Thread(target=compute, name="compute").start()
while time.monotonic() < END_S:
    time.sleep(0.001)
