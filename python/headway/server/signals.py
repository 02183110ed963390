"""The signals of Headway's own processes, and `Signals`, the only module that uses the wake-up
descriptor of a process (`signal.set_wakeup_fd`).
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar

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

# Ignored while a process that has decided to end does so.
ENDING = (signal.SIGTERM, *TERMINALS_SIGNALS)

# Ends the recorder of `--dashboard`. A service manager sends SIGTERM to all processes of a server,
# and the recorder must not end before the processes that report to it.
RECORDERS_END = signal.SIGRTMIN


def ignore(*numbers: signal.Signals) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


# A byte on the pipe that is no signal's number.
NO_SIGNAL = 0


class Signals:
    """Turns signals into bytes on a pipe, which a loop can poll. For the main thread.

    CPython runs signal handlers between bytecodes of the main thread. If a signal arrives just as
    that thread begins to wait, its handler does not run until the wait is over. The wake-up
    descriptor, here the pipe, is written immediately, in whichever thread the signal arrives.

    From `begin` to `end`, each signal with a handler in Python makes `fileno()` readable. Signals
    of `watched` have no other effect, and those of `ignored` have none. Those of `ignored_after`
    are ignored from `end` on, where the process is about to end: with the former handlers, a second
    signal would determine the exit status, as the first one does not. A process has one wake-up
    descriptor, and whoever replaces it takes the signals from whoever waits for them, so `begin`
    raises `RuntimeError` if another `Signals` of the process has it.
    """

    # The process in which a `Signals` has the descriptor, and the descriptor.
    _owned: ClassVar[tuple[int, int] | None] = None

    def __init__(
        self,
        watched: Collection[int] = (),
        ignored: Collection[signal.Signals] = (),
        ignored_after: Collection[int] = (),
    ) -> None:
        self._watched = watched
        self._ignored = ignored
        self._ignored_after = ignored_after

    def begin(self) -> None:
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._former_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        except ValueError:
            # Not the main thread of the main interpreter.
            self._close()
            raise
        if (os.getpid(), self._former_fd) == Signals._owned:
            signal.set_wakeup_fd(self._former_fd)
            self._close()
            raise RuntimeError("another part of Headway handles the signals of this process")
        Signals._owned = (os.getpid(), self._write_fd)
        self._former: dict[int, Any] = {
            number: signal.signal(number, lambda *_: None) for number in self._watched
        }
        self._former |= {number: signal.signal(number, signal.SIG_IGN) for number in self._ignored}

    def end(self) -> None:
        after = self._former | dict.fromkeys(self._ignored_after, signal.SIG_IGN)
        for number, handler in after.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        Signals._owned = None
        self._close()

    def __enter__(self) -> Signals:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    @staticmethod
    def forget() -> None:
        """For a forked child: the pipe is its parent's."""
        signal.set_wakeup_fd(-1)

    def fileno(self) -> int:
        return self._read_fd

    def read(self) -> list[int]:
        """The signals since the last call, in order, each once."""
        found: dict[int, None] = {}
        try:
            while data := os.read(self._read_fd, 4096):
                found |= dict.fromkeys(data)
        except BlockingIOError:
            pass
        found.pop(NO_SIGNAL, None)
        return list(found)

    def wait(self) -> list[int]:
        """Waits for a signal or `wake`, and reads."""
        poll = select.poll()
        poll.register(self._read_fd, select.POLLIN)
        poll.poll()
        return self.read()

    def wait_for_watched(self) -> None:
        """Waits for a signal of `watched`. A handler of another signal is not what ends this."""
        while not set(self._watched) & set(self.wait()):
            pass

    def wake(self) -> None:
        """Ends a `wait`. For any thread."""
        # A pipe that is full wakes its reader too.
        with suppress(BlockingIOError):
            os.write(self._write_fd, bytes([NO_SIGNAL]))

    def _close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)
