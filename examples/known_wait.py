"""The main thread waits 300 ms for the GIL, because another thread sleeps and keeps it."""

import ctypes
import threading

sleep = ctypes.PyDLL(None).usleep  # PyDLL keeps the GIL during the call
started = threading.Event()


def hold() -> None:
    started.set()
    sleep(300_000)


threading.Thread(target=hold, name="holder").start()
started.wait()
