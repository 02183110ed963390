"""Forks alone and beside another thread, and prints what is left of the functions that have."""

import os
import threading
import weakref


class Local:
    pass


def fork() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def alone() -> "weakref.ref[Local]":
    local = Local()
    fork()
    return weakref.ref(local)


def beside_a_thread() -> "weakref.ref[Local]":
    local, is_over = Local(), threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    fork()
    is_over.set()
    thread.join()
    return weakref.ref(local)


left = [alone(), beside_a_thread()]
print([each() for each in left])
