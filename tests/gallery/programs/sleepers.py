"""Ten threads that mostly sleep."""

import threading
import time

END_S = time.monotonic() + 2


def sleeper():
    while time.monotonic() < END_S:
        time.sleep(0.01)


for number in range(10):
    threading.Thread(target=sleeper, name=f"sleeper-{number}").start()
