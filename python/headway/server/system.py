"""The functions of the operating system from which the supervisor gets time and processes.

A test passes an object with the same functions, in which the test decides when time passes and when
processes end.
"""

from __future__ import annotations

import os
import select
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

    def poll(self, sources: select.poll, timeout_ms: int | None) -> list[tuple[int, int]]:
        return sources.poll(timeout_ms)
