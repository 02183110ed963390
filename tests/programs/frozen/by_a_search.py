"""A thread keeps the GIL for minutes, in one call of C code, while another wants it."""

import re
import threading
import time


def search() -> None:
    time.sleep(0.2)
    re.search("(a+)+b", "a" * 40)


threading.Thread(target=search, name="worker").start()
while True:
    time.sleep(0.01)
