"""Threads that C code started, which take the GIL only for callbacks (PyGILState_Ensure)."""

import ctypes
import threading
import time

libc = ctypes.CDLL(None)
Callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
total = 0
stop = threading.Event()


@Callback
def called_back(_):
    global total
    total += sum(range(100))
    return None


def compute():
    while not stop.is_set():
        sum(range(500))


hog = threading.Thread(target=compute, name="hog")
hog.start()
for _ in range(10):
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, called_back, None) == 0
    assert libc.pthread_join(thread, None) == 0
    time.sleep(0.001)
stop.set()
hog.join()
print(total)
