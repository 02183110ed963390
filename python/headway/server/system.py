"""The functions of the operating system from which the supervisor gets time and processes.

A test passes an object with the same functions, in which the test decides when time passes and when
processes end.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Callable

from headway import _native
from headway.server.control import open_pair

# The signature of `time.monotonic`.
Clock = Callable[[], float]


class System:
    """Each function is the one with the same name in `time`, `os`, `control` or the native part."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    posix_spawn = staticmethod(os.posix_spawn)
    kill = staticmethod(os.kill)
    killpg = staticmethod(os.killpg)
    waitpid = staticmethod(os.waitpid)
    waitid = staticmethod(os.waitid)
    open_pair = staticmethod(open_pair)
    adopt_orphans = staticmethod(_native.process_adopt_orphans)

    def start_thread(self, function: Callable[[], None]) -> None:
        """Has another thread call the function. The process may end before the function returns."""
        threading.Thread(target=function, name="headway-reading", daemon=True).start()

    def kill_group_with_reader(self, fd: int, group: int) -> None:
        """Has the kernel kill the process group when the pipe has no reader any more, as when this
        process was killed. `fd` is the pipe's writing end, and the group has it too."""
        fcntl.fcntl(fd, fcntl.F_SETOWN, -group)
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        # The state of the open file description: it lasts while the group has the descriptor.
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC)

    def poll(self, sources: select.poll, timeout_ms: int | None) -> list[tuple[int, int]]:
        return sources.poll(timeout_ms)
