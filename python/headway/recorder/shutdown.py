"""The signals that end the recorder: SIGINT, SIGTERM, SIGHUP (the terminal is closed), and the
signal of the server whose dashboard it is. They are handled from the very beginning of the process.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headway.server.signals import ENDING, RECORDERS_END, Signals, ignore

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, RECORDERS_END)


@contextmanager
def ending() -> Iterator[Callable[[], None]]:
    """Returns a context with a function that waits for the first of these signals. The process ends
    after the context, and ignores further ones. Main thread only."""
    # SIGHUP may be ignored from the start, as under `nohup`, and stays so.
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [each for each in SIGNALS if each != signal.SIGHUP or not is_ignored]
    with Signals(numbers, ignored_after=(*SIGNALS, *ENDING)) as signals:
        # The server blocks it before the recorder can handle it (`supervisor.dashboard`).
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {RECORDERS_END})

        def wait() -> None:
            signals.wait_for_watched()
            ignore(signal.SIGHUP)

        yield wait
