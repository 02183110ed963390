"""The main thread ends by pthread_exit. Other threads end later: two of Python's, and one of C that
never meets Python, the last of all."""

import ctypes
import threading
import time

libc = ctypes.CDLL(None)


def end_later(seconds: float) -> None:
    time.sleep(seconds)
    print("ended", flush=True)


for seconds in (0.05, 0.1):
    threading.Thread(target=end_later, args=(seconds,), daemon=True).start()
# sleep(1), as the function of a thread.
libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.sleep, ctypes.c_void_p(1))
libc.pthread_exit(None)
