"""Keeps the GIL inside one C call for 20 ms at a time, which no drop request can end."""

import ctypes
import threading
import time

usleep = ctypes.PyDLL(None).usleep
stop = threading.Event()


def wake_up():
    while not stop.is_set():
        time.sleep(0.001)


waiter = threading.Thread(target=wake_up, name="waiter")
waiter.start()
for _ in range(5):
    usleep(20_000)
    time.sleep(0.002)
stop.set()
waiter.join()
print("done")
