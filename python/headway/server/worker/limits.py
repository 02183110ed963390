"""The limits that a worker process watches itself: from a `ProcessGroup` to the native part.

What they mean is mod_wsgi's: docs of WSGIDaemonProcess. The native monitor looks, without the GIL,
and tells the supervisor through a descriptor; see `crates/server/src/limits`.
"""

from __future__ import annotations

import math
import random

from headway.meter import stacks
from headway.server.settings import ProcessGroup, Telemetry

# What a process may take beyond its graceful timeout to notice that it is over.
MARGIN_S = 2.0
# Decades, in a number that the system's clocks take.
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
    """What `server_open` is to know of the group's limits. Has stacks read from now on, so it is
    called in the main thread, in the process that serves.

    `control_fd` is a SOCK_SEQPACKET or SOCK_DGRAM socket that stays open as long as the server, or
    -1: each limit that is passed is told there once, in JSON.
    """
    # Without it nothing is lost but stacks.
    stacks.prepare()
    return {
        "maximum_requests": _with_jitter(group.maximum_requests, group.maximum_requests_jitter),
        "inactivity_timeout_ns": to_ns(group.inactivity_timeout_s),
        "request_timeout_ns": to_ns(request_timeout_s(group)),
        "interrupt_timeout_ns": to_ns(group.interrupt_timeout_s),
        "deadlock_timeout_ns": to_ns(group.deadlock_timeout_s),
        "queue_timeout_ns": to_ns(group.queue_timeout_s),
        # As long as the supervisor would have waited.
        "orphan_timeout_ns": to_ns(grace_s(group)),
        "control_fd": control_fd,
        **slow_requests(None),
        # Processes that accept from the same sockets leave each other their share.
        "shared_listeners": group.processes > 1,
    }


def slow_requests(telemetry: Telemetry | None) -> dict[str, int]:
    """Of what `native_limits` says, what becomes of requests that are told of one by one."""
    return {
        "slow_request_ns": to_ns(telemetry.slow_requests_s) if telemetry else 0,
        "user_agents": telemetry is not None and telemetry.capture_user_agent,
    }


def request_timeout_s(group: ProcessGroup) -> float:
    """How long a request may run: with more threads an outlier does less harm, so it gets more time
    (mod_wsgi's rule)."""
    return group.request_timeout_s * (1 + math.log(group.threads))


def drain_s(group: ProcessGroup) -> float:
    """How long requests that have begun may take once their process is to end. Without a graceful
    timeout it ends at once, and they have what the process has for that (mod_wsgi's rule)."""
    return group.graceful_timeout_s or group.shutdown_timeout_s or NO_LIMIT_S


def grace_s(group: ProcessGroup) -> float:
    """From the end of a process's service until it is killed; 0 for never."""
    if not group.shutdown_timeout_s:
        return 0.0
    return group.graceful_timeout_s + group.shutdown_timeout_s + MARGIN_S


def _with_jitter(maximum: int, jitter: int) -> int:
    return maximum + random.randint(0, jitter) if maximum else 0


def to_ns(seconds: float) -> int:
    return round(seconds * 1e9)
