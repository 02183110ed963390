"""A thread that makes objects, whose collections visit a million and a half of older ones."""

import threading
import time

END_S = time.monotonic() + 5
OLD = [[number] for number in range(1_500_000)]


def work():
    new = []
    while time.monotonic() < END_S:
        for number in range(2000):
            new.append((number, [number]))
        if len(new) > 400_000:
            new.clear()
        time.sleep(0.0005)


threading.Thread(target=work, name="work").start()
while time.monotonic() < END_S:
    time.sleep(0.001)
