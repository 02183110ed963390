"""Turns signals into bytes on a socket, which a loop can poll.

For the main thread. Python runs signal handlers between any two instructions. The handlers here do
nothing, and the loop reads the signals when it is ready to act on them.
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

# These would stop the supervisor for no reason. They are ignored and have no handler, because with
# a handler the kernel would restart a write to the terminal for ever. Programs that the supervisor
# starts get the default effect.
IGNORED = (signal.SIGTTIN, signal.SIGTTOU)

# The terminal sends these to all processes of the server. The supervisor decides on their effect.
TERMINALS_SIGNALS = (signal.SIGINT, signal.SIGHUP)
# A service manager may send these to all processes; an application may use them.
APPLICATIONS_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
# Blocked in a new process until it has handlers for them (`start`).
SUPERVISORS_SIGNALS = TERMINALS_SIGNALS + APPLICATIONS_SIGNALS

# Signals to end within this time count as one: `timeout` sends two to its child.
ONE_SIGNAL_S = 0.1

# Ends the recorder of `--dashboard`. A service manager sends SIGTERM to all processes of a server,
# and the recorder must not end before the processes that report to it.
RECORDERS_END = signal.SIGRTMIN


def ignore(*numbers: signal.Signals) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


class Signals:
    """While entered, signals of `WATCHED` only make `fileno()` readable, and those of `IGNORED`
    have no effect."""

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
        """The signals since the last call, in order, each once."""
        found: dict[int, None] = {}
        try:
            while data := self._ours.recv(4096):
                found |= dict.fromkeys(data)
        except BlockingIOError:
            pass
        return list(found)
