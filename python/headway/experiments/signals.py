"""Signals during a measurement. Handlers run in the main thread.

SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is gone) unwind, so that what was started is ended
and what was measured is kept. SIGCONT tells that this process stood still. It knows nothing of what
is measured.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TWICE_S = 1.0

# This process was stopped, and goes on.
continued = threading.Event()


def watch() -> None:
    """From now on."""
    signal.signal(signal.SIGCONT, lambda *_: continued.set())
    unwinding = Unwinding()
    for number in ENDING:
        # A signal that is ignored from the start stays ignored, as under `nohup`.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, unwinding)


class Unwinding:
    """A handler. A key that was pressed twice is pressed once: while the first unwinds, the second
    would cut short what that does. Later ones do it again, lest the first got lost in a place that
    cannot raise."""

    def __init__(self) -> None:
        self._began_s = -math.inf

    def __call__(self, number: int, _: object) -> None:
        now_s = time.monotonic()
        if now_s - self._began_s < TWICE_S:
            return
        self._began_s = now_s
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)


@contextmanager
def held() -> Iterator[None]:
    """For what has to be done whole: a signal that comes meanwhile does its work at the end."""
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
