"""Three threads that compute."""

import threading
import time

END_S = time.monotonic() + 3


def compute():
    while time.monotonic() < END_S:
        sum(range(1000))


for number in range(3):
    threading.Thread(target=compute, name=f"compute-{number}").start()
