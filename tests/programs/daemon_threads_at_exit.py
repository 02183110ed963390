"""Ends while daemon threads compute, wait for the GIL, and sleep outside it."""

import threading
import time


def compute():
    while True:
        sum(range(500))


def sleep():
    while True:
        time.sleep(0.0005)


for target in (compute, compute, sleep, sleep):
    threading.Thread(target=target, daemon=True).start()
time.sleep(0.1)
print("leaving")
