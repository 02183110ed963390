"""The functions of the operating system by which the supervisor has time and processes.

A test passes an object of its own with the same functions, in which time passes and processes end
when the test says so.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from headway import _native
from headway.server.control import open_pair

# The signature of `time.monotonic`.
Clock = Callable[[], float]


class System:
    """Each function is the one of that name in `time`, `os`, `control` or the native part."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    posix_spawn = staticmethod(os.posix_spawn)
    kill = staticmethod(os.kill)
    waitpid = staticmethod(os.waitpid)
    waitid = staticmethod(os.waitid)
    open_pair = staticmethod(open_pair)
    adopt_orphans = staticmethod(_native.process_adopt_orphans)

    def poll(self, sources: select.poll, timeout_ms: int | None) -> list[tuple[int, int]]:
        return sources.poll(timeout_ms)
