"""Passes the limits that a worker process checks itself from a `ProcessGroup` to the native part.

The limits have the meanings of mod_wsgi's WSGIDaemonProcess options. The native monitor checks them
without the GIL and reports to the supervisor through a descriptor; see `crates/server/src/limits`.
"""

from __future__ import annotations

import math
import random

from headway.meter import stacks
from headway.server.settings import ProcessGroup, Telemetry

# Decades, and still within the range of the system's clocks.
NO_LIMIT_S = 1e9

NO_LIMITS: dict[str, int] = {
    "maximum_requests": 0,
    "inactivity_timeout_ns": 0,
    "request_timeout_ns": 0,
    "interrupt_timeout_ns": 0,
    "deadlock_timeout_ns": 0,
    "queue_timeout_ns": 0,
    "orphan_timeout_ns": 0,
    "control_fd": -1,
    "slow_request_ns": 0,
    "user_agents": 0,
    "shared_listeners": 0,
}


def native_limits(group: ProcessGroup, control_fd: int) -> dict[str, int]:
    """The group's limits in the form that `server_open` takes. Also makes stacks readable, so call
    it in the main thread of the process that serves.

    `control_fd` is a SOCK_SEQPACKET or SOCK_DGRAM socket that stays open as long as the server, or
    -1. The monitor reports each exceeded limit there once, as JSON.
    """
    # If this fails, only the stacks are missing.
    stacks.prepare()
    return {
        "maximum_requests": _with_jitter(group.maximum_requests, group.maximum_requests_jitter),
        "inactivity_timeout_ns": to_ns(group.inactivity_timeout_s),
        "request_timeout_ns": to_ns(request_timeout_s(group)),
        "interrupt_timeout_ns": to_ns(group.interrupt_timeout_s),
        "deadlock_timeout_ns": to_ns(group.deadlock_timeout_s),
        "queue_timeout_ns": to_ns(group.queue_timeout_s),
        # A process whose supervisor has gone gets the time that the supervisor would have waited.
        "orphan_timeout_ns": to_ns(group.grace_s),
        "control_fd": control_fd,
        **slow_requests(None),
        # Processes that accept from the same sockets leave each other a share of connections.
        "shared_listeners": group.processes > 1,
    }


def slow_requests(telemetry: Telemetry | None) -> dict[str, int]:
    """The entries of `native_limits` for the requests that are reported one by one."""
    return {
        "slow_request_ns": to_ns(telemetry.slow_requests_s) if telemetry else 0,
        "user_agents": telemetry is not None and telemetry.capture_user_agent,
    }


def request_timeout_s(group: ProcessGroup) -> float:
    """The time that a request may run. With more threads an outlier does less harm, so a request
    gets more time (mod_wsgi's rule)."""
    return group.request_timeout_s * (1 + math.log(group.threads))


def drain_s(group: ProcessGroup) -> float:
    """The time that requests in progress have once their process must end. Without a graceful
    timeout the process ends at once, and the requests have the time that the process has to end
    (mod_wsgi's rule)."""
    return group.graceful_timeout_s or group.shutdown_timeout_s or NO_LIMIT_S


def _with_jitter(maximum: int, jitter: int) -> int:
    return maximum + random.randint(0, jitter) if maximum else 0


def to_ns(seconds: float) -> int:
    return round(seconds * 1e9)
