"""The convoy is in a forked child; the parent waits for its end."""

import os
import threading
import time


def compute():
    while time.monotonic() < END_S:
        sum(range(1000))


if os.fork() == 0:
    END_S = time.monotonic() + 3
    threading.Thread(target=compute, name="compute").start()
    while time.monotonic() < END_S:
        time.sleep(0.001)
else:
    os.wait()
