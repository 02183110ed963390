"""Threads that wait for a lock of the program, whose holder sleeps."""

import threading
import time

END_S = time.monotonic() + 2
lock = threading.Lock()


def work():
    while time.monotonic() < END_S:
        with lock:
            time.sleep(0.01)


for number in range(4):
    threading.Thread(target=work, name=f"work-{number}").start()
