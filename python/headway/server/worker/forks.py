"""Signals in the processes that a worker's application forks. SIGTERM ends such a process, as
multiprocessing expects, and does not reach the worker through the inherited handlers and pipes.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

from headway.server.signals import Signals

END = (signal.SIGTERM,)

_thread = threading.local()


def leave_signals_to_forks() -> None:
    """Applies to all later forks of this process. Call it in the main thread."""
    # The signal is blocked before the fork, because an early one would be lost or reach the worker.
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_forget)


def _hold() -> None:
    _thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, END)


def _release() -> None:
    mask: Iterable[int] = _thread.mask
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget() -> None:
    Signals.forget()
    for number in END:
        signal.signal(number, signal.SIG_DFL)
    _release()
