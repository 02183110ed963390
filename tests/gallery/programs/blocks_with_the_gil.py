"""A call that sleeps without dropping the GIL."""

import ctypes
import threading
import time

END_S = time.monotonic() + 3
usleep = ctypes.PyDLL(None).usleep


def driver():
    while time.monotonic() < END_S:
        usleep(80_000)
        time.sleep(0.02)


threading.Thread(target=driver, name="driver").start()
while time.monotonic() < END_S:
    time.sleep(0.001)
