"""How the recorder learns that it is to end: SIGINT or SIGTERM, or what the server sends whose
dashboard it is; from the very beginning on.

CPython runs handlers between bytecodes of the main thread, and one that comes just as that thread
begins to wait is not run until the wait is over. The wake-up descriptor is written to at once, and
another thread reads it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headway.server.signals import RECORDERS_END

SIGNALS = (signal.SIGINT, signal.SIGTERM, RECORDERS_END)


@contextmanager
def ending() -> Iterator[threading.Event]:
    """An event that is set when a signal has come. For the main thread."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    has_come = threading.Event()

    def wait() -> None:
        while os.read(read_fd, 1)[0] not in SIGNALS:
            pass
        has_come.set()

    waiter = threading.Thread(target=wait, name="headway-ending", daemon=True)
    waiter.start()
    former_fd = signal.set_wakeup_fd(write_fd)
    former = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    try:
        yield has_come
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former_fd)
        os.write(write_fd, bytes([signal.SIGTERM]))
        waiter.join()
        os.close(read_fd)
        os.close(write_fd)
