"""Reports on a serving process to its recorder: its settings and its end.

The native part reports on requests.
"""

from __future__ import annotations

from headway.errors import CommandError
from headway.meter.reporter import Reporter
from headway.server.settings import ProcessGroup, Telemetry
from headway.server.worker.native_limits import request_timeout_s

# The kinds of a server's processes, as opposed to other processes that report.
SERVE, EMBEDDED = "serve", "embedded"


def begin(telemetry: Telemetry, group: ProcessGroup, kind: str) -> Reporter:
    """Returns a reporter that has started. Raises `CommandError`."""
    # In embedded mode there is no group name, as in mod_wsgi.
    name = group.reported_name if kind == SERVE else ""
    identity = configured(group) | {"slow_requests_threshold": telemetry.slow_requests_s}
    try:
        return Reporter(telemetry.path, telemetry.interval_s, identity, kind=kind, group=name)
    except ValueError as error:
        raise CommandError(f"--telemetry unix:{telemetry.path}: {error}", exit_code=2) from None
    except OSError as error:
        raise CommandError(f"--telemetry unix:{telemetry.path}: {error}") from None


def configured(group: ProcessGroup) -> dict[str, object]:
    """The limits of the group's processes; 0 means that a limit is off."""
    return {
        "kernel_hints": int(group.kernel_hints),
        "request_timeout": request_timeout_s(group),
        "interrupt_timeout": group.interrupt_timeout_s,
        "queue_timeout": group.queue_timeout_s,
        "graceful_timeout": group.graceful_timeout_s,
        "shutdown_timeout": group.shutdown_timeout_s,
        "deadlock_timeout": group.deadlock_timeout_s,
        "inactivity_timeout": group.inactivity_timeout_s,
        "restart_interval": group.restart_interval_s,
        "maximum_requests": group.maximum_requests,
        "startup_timeout": group.startup_timeout_s,
    }
