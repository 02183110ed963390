"""What the application of a worker forks: SIGTERM ends it, as multiprocessing has it, and does not
reach the worker, whose handlers and pipes it has inherited.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

END = (signal.SIGTERM,)

_thread = threading.local()


def leave_signals_to_forks() -> None:
    """From now on, in this process. For the main thread."""
    # Blocked from before the fork on, or one that comes early would be lost or reach the worker.
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_forget)


def _hold() -> None:
    _thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, END)


def _release() -> None:
    mask: Iterable[int] = _thread.mask
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget() -> None:
    signal.set_wakeup_fd(-1)
    for number in END:
        signal.signal(number, signal.SIG_DFL)
    _release()
