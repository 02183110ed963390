"""Stops all threads of another process for a moment, by ptrace(2).

Meanwhile nothing in it runs, so a word of its memory can be read, changed and written back. The
kernel lets the threads go on if this process ends. System calls that they are in continue, as after
SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time

from headway.errors import Error

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
EVENT_STOP = 128
# Wait for threads of any kind, too.
WALL = 0x40000000
PAUSE_S = 0.0002


class CannotStop(Error):
    """The process cannot be stopped now. The text is the reason."""


class Stopped:
    """Stops the threads of a process until the end of the `with` block. All calls come from one
    thread, which is the tracer to the kernel."""

    def __init__(self, pid: int, within_s: float = 1.0) -> None:
        self._pid = pid
        self._deadline = time.monotonic() + within_s
        # By thread: the signal to pass on, which arrived as the thread stopped.
        self._stopped: dict[int, int] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long] * 4
        self._libc.ptrace.restype = ctypes.c_long

    def __enter__(self) -> Stopped:
        try:
            # Threads may start until the last one has stopped.
            while new := self._threads() - self._stopped.keys():
                seized = [thread for thread in new if self._begin(thread)]
                for thread in seized:
                    self._await_stop(thread)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for thread, number in self._stopped.items():
            self._ptrace(DETACH, thread, number)
        self._stopped.clear()

    def _threads(self) -> set[int]:
        try:
            return set(map(int, os.listdir(f"/proc/{self._pid}/task")))
        except OSError:
            raise CannotStop(f"process {self._pid} has ended") from None

    def _begin(self, thread: int) -> bool:
        if self._ptrace(SEIZE, thread) != 0:
            if not os.path.exists(f"/proc/{self._pid}/task/{thread}"):
                return False
            raise CannotStop(f"thread {thread}: {os.strerror(ctypes.get_errno())}")
        self._stopped[thread] = 0
        return self._ptrace(INTERRUPT, thread) == 0

    def _await_stop(self, thread: int) -> None:
        while True:
            try:
                found, status = os.waitpid(thread, WALL | os.WNOHANG)
            except ChildProcessError:
                found, status = thread, 0
            if found:
                break
            if time.monotonic() > self._deadline:
                raise CannotStop(f"thread {thread} does not stop: it is in an uninterruptible wait")
            time.sleep(PAUSE_S)
        if not os.WIFSTOPPED(status):
            # It has ended.
            del self._stopped[thread]
        elif status >> 16 != EVENT_STOP and os.WSTOPSIG(status) != signal.SIGTRAP:
            self._stopped[thread] = os.WSTOPSIG(status)

    def _ptrace(self, request: int, thread: int, data: int = 0) -> int:
        return int(self._libc.ptrace(request, thread, 0, data))
