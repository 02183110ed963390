"""Ends while daemon threads are in calls that never return, with and without the GIL dropped."""

import ctypes
import threading
import time

lock = threading.Lock()
lock.acquire()
pause = ctypes.CDLL(None).pause

for number in range(3):
    threading.Thread(target=lock.acquire, daemon=True, name=f"locked-{number}").start()
    threading.Thread(target=pause, daemon=True, name=f"paused-{number}").start()
time.sleep(0.1)
print(threading.active_count(), "threads, 6 of them for ever")
