"""A thread that has to do a little every 5 ms, beside two that compute."""

import threading
import time

END_S = time.monotonic() + 4


def compute():
    while time.monotonic() < END_S:
        sum(range(1000))


def player():
    while time.monotonic() < END_S:
        time.sleep(0.005)
        sum(range(100))


for number in range(2):
    threading.Thread(target=compute, name=f"compute-{number}").start()
threading.Thread(target=player, name="player").start()
