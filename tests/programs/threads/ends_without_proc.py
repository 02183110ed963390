"""Threads of a process that cannot open a file end after its main thread. "chroot" and "limit" say
why it cannot: a child that a thread has forked; "descriptors": this process."""

import ctypes
import os
import resource
import sys
import tempfile
import threading
import time
from contextlib import suppress

# glibc loads it for pthread_exit, and aborts without a descriptor.
with suppress(OSError):
    ctypes.CDLL("libgcc_s.so.1")


def fork(reason: str, folder: str) -> None:
    pid = os.fork()
    if pid:
        print(os.waitpid(pid, 0)[1], flush=True)
    elif reason == "chroot":
        os.chroot(folder)
        os.chdir("/")
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


if sys.argv[1] == "descriptors":
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
    threading.Thread(target=time.sleep, args=(0.1,), daemon=True).start()
    ctypes.CDLL(None).pthread_exit(None)
with tempfile.TemporaryDirectory() as folder:
    thread = threading.Thread(target=fork, args=(sys.argv[1], folder))
    thread.start()
    thread.join()
    # The child ends with its thread, and has no part in this.
