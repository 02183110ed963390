"""Signals as something to poll: each that comes is one byte in a socket.

For the main thread. Python's own handlers run between any two of its instructions; these do
nothing, and the loop reads what came when it is ready to act on it.
"""

from __future__ import annotations

import signal
import socket
from types import TracebackType

WATCHED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
)

# They would stop the supervisor, for no reason that it has. Ignored, since with a handler the
# kernel has a write to the terminal tried again for ever; programs that it starts have their
# default effect.
IGNORED = (signal.SIGTTIN, signal.SIGTTOU)

# The terminal sends these to all processes of the server, and what they mean is for the supervisor
# to say.
TERMINALS_SIGNALS = (signal.SIGINT, signal.SIGHUP)
# A service manager may send these to all processes; an application may use them.
APPLICATIONS_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
# Blocked in a new process until it has handlers for them (`start`).
SUPERVISORS_SIGNALS = TERMINALS_SIGNALS + APPLICATIONS_SIGNALS

# Signals to end that come this close together are one: `timeout` sends its child two.
ONE_SIGNAL_S = 0.1

# Ends the recorder of `--dashboard`. Nobody sends it to all processes of a server, as they do
# SIGTERM, at which the recorder would end before those that it hears.
RECORDERS_END = signal.SIGRTMIN


def ignore(*numbers: signal.Signals) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


class Signals:
    """While entered, `WATCHED` have no other effect than to make `fileno()` readable, and `IGNORED`
    none."""

    def __enter__(self) -> Signals:
        self._ours, self._theirs = socket.socketpair()
        for end in (self._ours, self._theirs):
            end.setblocking(False)
        self._former_fd = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        self._former = {number: signal.signal(number, lambda *_: None) for number in WATCHED}
        self._former |= {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self._ours.close()
        self._theirs.close()

    def fileno(self) -> int:
        return self._ours.fileno()

    def read(self) -> list[int]:
        """Those that came since, in order, each once however often it came."""
        found: dict[int, None] = {}
        try:
            while data := self._ours.recv(4096):
                found |= dict.fromkeys(data)
        except BlockingIOError:
            pass
        return list(found)
