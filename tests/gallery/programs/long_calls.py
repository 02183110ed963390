"""Calls of C code that keep the GIL for some tenths of a second."""

import re
import threading
import time

END_S = time.monotonic() + 4


def worker():
    while time.monotonic() < END_S:
        re.search("(a+)+b", "a" * 23)
        time.sleep(0.05)


threading.Thread(target=worker, name="worker").start()
while time.monotonic() < END_S:
    time.sleep(0.001)
