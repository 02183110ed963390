"""A thread that computes in Python, and once a second in one call of C code."""

import json
import threading
import time

CALL_S = 0.2


def rows():
    """Returns a list that `json.dumps` writes in about `CALL_S` seconds on this machine."""
    some = list(range(200_000))
    began_s = time.monotonic()
    json.dumps(some)
    return some * round(CALL_S / (time.monotonic() - began_s))


ROWS = rows()
END_S = time.monotonic() + 5


def compute():
    last_s = time.monotonic()
    while time.monotonic() < END_S:
        if time.monotonic() - last_s > 1:
            json.dumps(ROWS)
            last_s = time.monotonic()


threading.Thread(target=compute, name="compute").start()
while time.monotonic() < END_S:
    time.sleep(0.001)
