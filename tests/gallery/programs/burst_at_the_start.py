"""A thread that computes for a fifth of a second, and then nothing for three."""

import threading
import time


def start_up():
    end_s = time.monotonic() + 0.2
    while time.monotonic() < end_s:
        sum(range(1000))


threading.Thread(target=start_up, name="start_up").start()
end_s = time.monotonic() + 3
while time.monotonic() < end_s:
    time.sleep(0.001)
