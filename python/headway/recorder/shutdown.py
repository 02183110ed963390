"""The signals that end the recorder: SIGINT, SIGTERM, and the signal of the server whose dashboard
it is. They are handled from the very beginning of the process.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headway.server.signals import ENDING, RECORDERS_END, Signals, ignore

SIGNALS = (signal.SIGINT, signal.SIGTERM, RECORDERS_END)


@contextmanager
def ending() -> Iterator[Callable[[], None]]:
    """Returns a context with a function that waits for the first of these signals. The process ends
    after the context, and ignores further ones. Main thread only."""
    with Signals(SIGNALS, ignored_after=(*SIGNALS, *ENDING)) as signals:
        # The server blocks it before the recorder can handle it (`supervisor.dashboard`).
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {RECORDERS_END})

        def wait() -> None:
            signals.wait_for_watched()
            ignore(signal.SIGHUP)

        yield wait
