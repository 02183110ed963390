"""The use of the cores that this process may use, since the meter was installed.

A program whose cores others take waits for its GIL because a holder has no core. The counters show
that the holder did not run; only the kernel's figures of all cores show that others did.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEYS = ("busy_s", "own_s", "cpu_s")
# The process that the figures are of, and its CPU seconds of KEYS at the installation and at the
# end of it; None while the meter is there, and for what could not be read.
_pid = 0
_begun: tuple[float, ...] | None = None
_ended: tuple[float, ...] | None = None
# Columns of a line of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq and
# steal. Guests are part of user.
_COLUMNS = 8
_IDLE, _IOWAIT = 3, 4
# The lines of a thousand cores, which come first.
_MOST_BYTES = 1 << 17


def begin() -> None:
    """The meter has been installed."""
    global _pid, _begun, _ended
    _pid, _begun, _ended = os.getpid(), _read(), None


def end() -> None:
    """The meter is removed: the counters grow no more."""
    global _ended
    _ended = _read()


def since_begin() -> dict[str, Any] | None:
    """The fields of `report.model.Machine`; None if they are not known, as in a forked child, whose
    counters begin later."""
    now = _ended or _read()
    if now is None or _begun is None or os.getpid() != _pid:
        return None
    used = {
        key: max(0.0, after - before) for key, after, before in zip(KEYS, now, _begun, strict=True)
    }
    return {"cores": len(os.sched_getaffinity(_pid)), **used}


def _read() -> tuple[float, ...] | None:
    try:
        cores = {b"cpu%d" % core for core in os.sched_getaffinity(os.getpid())}
        lines = _stat().splitlines()
        ticks = 0
        for line in lines:
            name, *columns = line.split()
            if name in cores:
                used = list(map(int, columns[:_COLUMNS]))
                ticks += sum(used) - used[_IDLE] - used[_IOWAIT]
        times = os.times()
        cpu_s = times.user + times.system
        own_s = cpu_s + times.children_user + times.children_system
        return ticks / os.sysconf("SC_CLK_TCK"), own_s, cpu_s
    except (OSError, ValueError, IndexError):
        # A container may hide the file.
        return None


def _stat() -> bytes:
    """The file as it is at one moment. A stream's lock would be a wait of the calling thread in a
    free-threaded build."""
    descriptor = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
