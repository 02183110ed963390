"""Serves one process group from this process, without a supervisor."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from headway import gil
from headway.errors import CommandError, Unsupported
from headway.server import table
from headway.server.application import load_application
from headway.server.binding import bind
from headway.server.serving import Server
from headway.server.settings import ServerSettings
from headway.server.transport import native_transport


def supervise(settings: ServerSettings, reread: Callable[[], ServerSettings]) -> int:
    """Serves until a signal comes; returns the exit code."""
    group = settings.groups[0]
    sys.path[:0] = group.python_path
    listener, address = bind(group.binds[0])
    try:
        log_fd = -1 if group.access_log == "off" else _open_log(group.access_log_path)
        application = load_application(group.mounts[0].application)
        if group.switch_interval_s is not None:
            sys.setswitchinterval(group.switch_interval_s)
        _install_meter(group.policy, group.kernel_hints)
        server = Server(
            application,
            listener,
            address,
            threads=group.threads,
            log_form=group.access_log,
            log_fd=log_fd,
            http=group.http,
            transport=native_transport(group),
        )
        scheme = "https" if group.tls else "http"
        return _serve(server, scheme, group.graceful_timeout_s)
    finally:
        listener.close()
        if address.path is not None:
            os.unlink(address.path)


def _serve(server: Server, scheme: str, graceful_timeout_s: float) -> int:
    stop_signal = _StopSignal()
    server.start()
    where = server.address if server.address.path is not None else f"{scheme}://{server.address}"
    print(f"headway serve: listening on {where}", file=sys.stderr, flush=True)
    stop_signal.wait()
    server.stop()
    cut_off = server.join(graceful_timeout_s)
    report = gil.snapshot().to_dict() if gil.is_installed() else None
    sys.stderr.write("\n" + table.draw(server.requests(), report))
    if not cut_off:
        return 0
    threads = "1 thread was" if cut_off == 1 else f"{cut_off} threads were"
    print(
        f"headway serve: {threads} still in the application after {graceful_timeout_s:g} s "
        "(--graceful-timeout) and cut off",
        file=sys.stderr,
    )
    # A thread that hangs in the application would hang the end of the interpreter too, or be
    # killed in the middle of it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


class _StopSignal:
    """Waits for SIGINT or SIGTERM. From the first one on, the next has its default effect."""

    def __init__(self) -> None:
        # A pipe, since a handler may interrupt its own thread anywhere, a lock included.
        self._read_fd, self._write_fd = os.pipe()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def wait(self) -> None:
        os.read(self._read_fd, 1)

    def _note(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.write(self._write_fd, b"!")


def _install_meter(policy: str, kernel_hints: bool) -> None:
    """Serving goes on without the meter, but not without a policy that was asked for."""
    try:
        gil.install(policy, kernel_hints=kernel_hints)
    except Unsupported as reason:
        if policy != "interval":
            raise CommandError(f"--policy {policy}: {reason}") from None
        print(f"headway serve: GIL waits are not measured: {reason}", file=sys.stderr)


def _open_log(path: str | None) -> int:
    if path is None:
        return os.dup(1)
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--access-log {path}: {reason}", exit_code=2) from None
