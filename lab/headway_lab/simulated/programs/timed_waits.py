"""Measures how late timed waits end, and reads the kernel's timer slack and scheduling settings.

    timed_waits.py CORE TIMEOUT_US COUNT

The waits are those of a lock with a timeout, as a thread's for the GIL are. `slice_ns` is what
sched_getattr() tells since Linux 6.12, 0 before; `tick_ns` the resolution of the coarse clock,
which moves once a tick.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import threading
import time

import window

PR_GET_TIMERSLACK = 30  # <linux/prctl.h>
CLOCK_MONOTONIC_COARSE = 6  # <linux/time.h>
SYS_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
libc = ctypes.CDLL(None)


class SchedAttr(ctypes.Structure):
    """struct sched_attr, version 0; see sched_getattr(2)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def slice_ns() -> int:
    number = SYS_SCHED_GETATTR.get(platform.machine())
    attributes = SchedAttr()
    size = ctypes.sizeof(attributes)
    if number is None or libc.syscall(number, 0, ctypes.byref(attributes), size, 0) != 0:
        return 0
    return int(attributes.runtime_ns)


def late_ns(timeout_us: int, count: int) -> list[int]:
    never = threading.Lock()
    never.acquire()
    found = []
    for _ in range(count):
        began_ns = time.monotonic_ns()
        never.acquire(timeout=timeout_us / 1e6)
        found.append(time.monotonic_ns() - began_ns - timeout_us * 1_000)
    return found


def main() -> None:
    core, timeout_us, count = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    window.answer(
        late_ns=late_ns(timeout_us, count),
        slack_ns=libc.prctl(PR_GET_TIMERSLACK),
        tick_ns=round(time.clock_getres(CLOCK_MONOTONIC_COARSE) * window.NS),
        slice_ns=slice_ns(),
    )


if __name__ == "__main__":
    main()
