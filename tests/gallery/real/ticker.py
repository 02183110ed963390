"""Runs work in a thread called `work` for some seconds, while the main thread does a little every
two milliseconds: what the work does to the rest of a program."""

import threading
import time

SECONDS = 4


def beside_a_ticker(work, threads=1, seconds=SECONDS):
    work()  # imports, caches
    end_s = time.monotonic() + seconds

    def repeat():
        while time.monotonic() < end_s:
            work()

    for number in range(threads):
        name = "work" if threads == 1 else f"work-{number}"
        threading.Thread(target=repeat, name=name).start()
    while time.monotonic() < end_s:
        time.sleep(0.002)
