"""Stops all threads of another process for a moment, by ptrace(2).

Meanwhile nothing in it runs, so a word of its memory can be read, changed and written back. System
calls that its threads are in go on or end with EINTR, as after SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from headway.attach.target import missing_right
from headway.errors import Error

Result = TypeVar("Result")

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
EVENT_STOP = 128
# Wait for threads of any kind, too.
WALL = 0x40000000
PAUSE_S = 0.0002
LIMIT_S = 1.0


class CannotStop(Error):
    """The process cannot be stopped now. The text is the reason."""


def while_stopped(pid: int, work: Callable[[], Result]) -> Result:
    """Returns what `work` returns, which is called while all threads of the process are stopped.

    The tracer is a thread that ends with this call: the kernel then lets go of every thread, also
    of one that did not stop in time, because it is in an uninterruptible wait. Raises `CannotStop`,
    and what `work` raises.
    """
    results: list[Result] = []
    problems: list[BaseException] = []

    def trace() -> None:
        stopped = _Stopped(pid)
        try:
            stopped.stop()
            results.append(work())
        except BaseException as problem:
            problems.append(problem)
        finally:
            stopped.go_on()

    tracer = threading.Thread(target=trace, name="headway-attach-tracer")
    tracer.start()
    tracer.join()
    if problems:
        raise problems[0]
    return results[0]


class _Stopped:
    """The threads of a process that the calling thread traces."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._deadline = time.monotonic() + LIMIT_S
        # By thread: the signal to pass on, which arrived as the thread stopped.
        self._traced: dict[int, int] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long] * 4
        self._libc.ptrace.restype = ctypes.c_long

    def stop(self) -> None:
        # Threads may start until the last one has stopped.
        while new := self._threads() - self._traced.keys():
            seized = [thread for thread in new if self._begin(thread)]
            for thread in seized:
                self._await_stop(thread)

    def go_on(self) -> None:
        for thread, number in self._traced.items():
            self._ptrace(DETACH, thread, number)

    def _threads(self) -> set[int]:
        try:
            return set(map(int, os.listdir(f"/proc/{self._pid}/task")))
        except OSError:
            raise CannotStop(f"process {self._pid} has ended") from None

    def _begin(self, thread: int) -> bool:
        if self._ptrace(SEIZE, thread) != 0:
            problem = ctypes.get_errno()
            if not os.path.exists(f"/proc/{self._pid}/task/{thread}"):
                return False
            # A thread that is about to end is refused in this way, too.
            is_forbidden = problem in (errno.EPERM, errno.ENOSYS)
            right = f": {missing_right()}" if is_forbidden else ""
            raise CannotStop(f"ptrace: {os.strerror(problem)}{right}")
        self._traced[thread] = 0
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
            del self._traced[thread]
        elif status >> 16 != EVENT_STOP:
            self._traced[thread] = os.WSTOPSIG(status)

    def _ptrace(self, request: int, thread: int, data: int = 0) -> int:
        return int(self._libc.ptrace(request, thread, 0, data))
