"""Two threads in C code that never drops the GIL, 30 ms at a time."""

import threading
import time

END_S = time.monotonic() + 3
NUMBER = (1 << 1_500_000) - 1


def multiply():
    while time.monotonic() < END_S:
        NUMBER * NUMBER


for number in range(2):
    threading.Thread(target=multiply, name=f"multiply-{number}").start()
