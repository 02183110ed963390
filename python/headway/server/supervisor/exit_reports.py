"""Exit reports that the supervisor sends for processes that could not report their own end, such as
after a crash, a SIGKILL or a memory limit.

They have the format of the processes' own reports and go to the same socket. Sending never blocks:
a report that the recorder cannot take yet is retried for `PATIENCE_S`. Only the supervisor's single
thread uses this module.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from typing import NamedTuple

from headway import _native
from headway.meter.reporter import as_text, own_identity
from headway.server.supervisor.process import End, Process
from headway.server.system import Clock
from headway.server.worker.reporting import SERVE

PROCESS_STOPPED = 7
# The interval between attempts to send a report, and how long to retry.
RETRY_S = 1.0
PATIENCE_S = 60.0
MAX_WAITING = 256
MEMORY_EVENTS = "memory.events"


class ExitReport(NamedTuple):
    path: str
    datagram: bytes
    # When to give up, by the clock.
    until: float


class ExitReports:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[ExitReport] = deque(maxlen=MAX_WAITING)
        self._retry_at: float | None = None
        self._oom_kills = oom_kills()

    @property
    def retry_at(self) -> float | None:
        """When to call `send` again."""
        return self._retry_at

    def tell(self, process: Process, end: End | None, requests: int | None) -> None:
        """Reports the end of a process that reported its start but not its end. `requests` is how
        many requests it is known to have served, `None` if unknown."""
        telemetry, started = process.telemetry, process.reports_since
        kills, before = oom_kills(), self._oom_kills
        self._oom_kills = kills
        if telemetry is None or started is None or process.has_reported:
            return
        now = time.time()
        fields: dict[str, object] = {
            **own_identity(),
            "process_kind": SERVE,
            "process_group": process.group.reported_name,
            "process_parent_pid": os.getpid(),
            "process_started_stamp": started,
            "process_uptime": max(now - started, 0.0),
            "shutdown_reason": reason_of(process, end, was_oom_kill=kills > before),
            "shutdown_detail": as_text(process.detail),
            "death": end.death if end is not None else "unknown",
            "graceful_drain": 0,
            "reported_by_supervisor": 1,
        }
        if requests is not None:
            fields["lifetime_request_count"] = requests
        datagram = _native.telemetry_encode(PROCESS_STOPPED, process.pid, 0, now, fields)
        self._waiting.append(ExitReport(telemetry.path, datagram, self._clock() + PATIENCE_S))
        self.send()

    def send(self) -> None:
        """Sends the waiting reports. Keeps those that cannot be sent until they expire."""
        self._retry_at = None
        if not self._waiting:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post:
            for _ in range(len(self._waiting)):
                each = self._waiting.popleft()
                sent = False
                with contextlib.suppress(OSError):
                    post.sendto(each.datagram, socket.MSG_DONTWAIT, each.path)
                    sent = True
                if not sent and self._clock() < each.until:
                    self._waiting.append(each)
        if self._waiting:
            self._retry_at = self._clock() + RETRY_S


def reason_of(process: Process, end: End | None, *, was_oom_kill: bool) -> str:
    """The shutdown reason: one of mod_wsgi's names, `crash`, `memory_limit` or `unknown`."""
    if process.reason:
        return process.reason
    if end is None or end.exit_code == 0:
        return "unknown"
    is_sigkill = end.signal_number is not None and end.reason == "SIGKILL"
    return "memory_limit" if is_sigkill and was_oom_kill else "crash"


def oom_kills() -> int:
    """How often the kernel's OOM killer has killed a process of this cgroup; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/cgroup") as file:
            paths = [line.strip().split(":", 2)[2] for line in file if line.startswith("0:")]
        for path in paths:
            # In a cgroup namespace, the cgroup itself may be at the mount point.
            for directory in (f"/sys/fs/cgroup{path}", "/sys/fs/cgroup"):
                with contextlib.suppress(OSError), open(f"{directory}/{MEMORY_EVENTS}") as file:
                    counts = dict(line.split() for line in file)
                    return int(counts.get("oom_kill", 0))
    return 0
