"""A thread that sleeps for moments beside one that computes. Prints one line."""

import threading
import time

END = time.monotonic() + 1


def light():
    while time.monotonic() < END:
        time.sleep(0.001)


def heavy():
    while time.monotonic() < END:
        sum(range(1000))


threads = [threading.Thread(target=each, name=each.__name__) for each in (light, heavy)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
