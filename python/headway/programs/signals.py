"""Signals during a measurement. Handlers run in the main thread.

SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is closed) raise an exception, so that processes
are ended and results are kept. SIGCONT means that this process was stopped. This module does not
know what is measured.
"""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TWICE_S = 1.0

# This process was stopped and has been continued.
continued = threading.Event()


def watch() -> None:
    """Installs the handlers."""
    signal.signal(signal.SIGCONT, lambda *_: continued.set())
    unwinding = Unwinding()
    for number in ENDING:
        # A signal that is ignored from the start stays ignored, as under `nohup`.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, unwinding)


class Unwinding:
    """A handler that raises. A second signal soon after the first is ignored, because it would
    interrupt the cleanup that the first one started. Later signals raise again, in case the first
    exception was lost in a place that cannot raise."""

    def __init__(self) -> None:
        self._began_s = -math.inf

    def __call__(self, number: int, _: object) -> None:
        now_s = time.monotonic()
        if now_s - self._began_s < TWICE_S:
            return
        self._began_s = now_s
        if number == signal.SIGHUP:
            _lose_what_nobody_can_read()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


def _lose_what_nobody_can_read() -> None:
    """Redirects stdout and stderr to /dev/null where they are a terminal that was closed: an error
    of a write to it would take the place of the exception that ends the measurement."""
    outputs = select.poll()
    for descriptor in (1, 2):
        outputs.register(descriptor, 0)
    for descriptor, state in outputs.poll(0):
        if state & (select.POLLHUP | select.POLLERR):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, descriptor)
            os.close(nothing)


@contextmanager
def held() -> Iterator[None]:
    """Delays signals during work that must not be interrupted. A signal that arrives meanwhile is
    handled at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {}
    try:
        for number in ENDING:
            before[number] = signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
