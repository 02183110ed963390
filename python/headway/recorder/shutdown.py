"""Handles the signals that end the recorder: SIGINT, SIGTERM, and the signal of the server whose
dashboard it is. They are handled from the very beginning of the process.

CPython runs signal handlers between bytecodes of the main thread. If a signal arrives just as that
thread begins to wait, its handler does not run until the wait is over. The wake-up descriptor is
written immediately, and another thread reads it.
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
    """Returns a context with an event that is set when a signal arrives. Main thread only."""
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
