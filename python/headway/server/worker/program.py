"""`headway.serve`: serves an application from the program that calls it, without a supervisor."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from headway import gil
from headway.address import parse_address
from headway.errors import CommandError
from headway.meter.reporter import Reporter
from headway.options import SocketPath
from headway.server import identity
from headway.server.binding import Listener, bind
from headway.server.free_threading import gil_enabled, refuse_other_mode
from headway.server.settings import LOG_FORMS, ProcessGroup, Telemetry, Tls
from headway.server.signals import ONE_SIGNAL_S, Signals
from headway.server.socket_file import SocketFile
from headway.server.stderr import tell
from headway.server.system import Clock
from headway.server.worker import reporting
from headway.server.worker.application import Application
from headway.server.worker.calling_convention import find_mismatch
from headway.server.worker.native_limits import NO_LIMITS, native_limits, slow_requests
from headway.server.worker.serving import Server
from headway.server.worker.start import open_log
from headway.server.worker.undeclared import told
from headway.server.worker.worker import install_meter

DEFAULTS = ProcessGroup()
# The reported reason, whether a signal or the program stops the server.
STOP_REASON = "shutdown_signal"
# Calls its first argument, which begins to serve, and returns the result of its second, which ends
# that, when it is time.
Run = Callable[[Callable[[], None], Callable[[], int]], int]


def say_where(address: str) -> None:
    tell(f"headway: listening on {address}\n")


def serve(
    application: Application,
    *,
    bind: str | Sequence[str] | None = None,
    threads: int | None = None,
    policy: str | None = None,
    kernel_hints: bool | None = None,
    switch_interval: float | None = None,
    free_threading: bool | None = None,
    access_log: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    graceful_timeout: float | None = None,
    telemetry: str | Telemetry | None = None,
    settings: ProcessGroup = DEFAULTS,
    announce: Callable[[str], object] = say_where,
    stop: threading.Event | None = None,
) -> int:
    """Serves a WSGI application until SIGINT or SIGTERM arrives or `stop` is set. Then answers the
    requests that clients have sent by that time, and returns the number of threads left in the
    application: 0, unless a thread stayed there for longer than `graceful_timeout` seconds, and did
    not end when its request was cut off. `stop` is set in any case at the end.

    `bind` is HOST:PORT or unix:PATH, or several of them (default: 127.0.0.1:8000). `access_log` is
    common, combined, json or off; a suffix `:PATH` names a file. `telemetry` is the unix:PATH on
    which `headway telemetry` listens, now or later, or a `Telemetry` with more settings.
    `free_threading` says whether Python must run without a GIL; `None` accepts either mode. The
    server calls `announce` with each URL or unix:PATH on which it listens. The GIL meter and the
    policy stay installed if they were installed before the call, and are removed otherwise.
    `settings` has all other limits of `headway serve`, and the values of arguments that are None.
    In the main thread, the server uses the process's `signal.set_wakeup_fd` while it serves. In any
    other thread, the program handles its signals itself, and only `stop` ends the server.

    Raises `headway.errors.CommandError` if the server cannot listen, the policy is not available or
    Python does not run in the mode that `free_threading` requires, `TypeError` for an application
    that cannot be called as a WSGI application is, `ValueError` for a value that no server can
    have, and `RuntimeError` if another part of Headway handles the process's signals.
    """
    if not callable(application):
        raise TypeError(f"application is {application!r}, and must be callable")
    mismatch = find_mismatch(application, "application", "pass its result")
    if mismatch is not None:
        raise TypeError(mismatch)
    form, path = settings.access_log, settings.access_log_path or ""
    if access_log is not None:
        form, _, path = access_log.partition(":")
    if form not in LOG_FORMS or (form == "off" and path):
        raise ValueError(f"access_log is {access_log!r}, and must be one of {list(LOG_FORMS)}")
    if (tls_certificate is None) != (tls_key is None):
        raise ValueError("tls_certificate and tls_key: TLS needs both")
    binds = settings.binds
    if bind is not None:
        binds = tuple(parse_address(each) for each in ([bind] if isinstance(bind, str) else bind))
    if not binds:
        raise ValueError("bind is empty, and must have an address")
    threads = settings.threads if threads is None else threads
    if threads < 1:
        raise ValueError(f"threads is {threads}, and must be 1 or more")
    refuse_other_mode(
        (settings.free_threading or None) if free_threading is None else free_threading
    )
    group = replace(
        settings,
        # The server runs the given application in this interpreter.
        mounts=(),
        binds=binds,
        threads=threads,
        policy=policy or settings.policy,
        kernel_hints=settings.kernel_hints if kernel_hints is None else kernel_hints,
        switch_interval_s=(
            settings.switch_interval_s if switch_interval is None else switch_interval
        ),
        access_log=form,
        access_log_path=path or None,
        tls=Tls(tls_certificate, tls_key) if tls_certificate and tls_key else settings.tls,
        graceful_timeout_s=(
            settings.graceful_timeout_s if graceful_timeout is None else graceful_timeout
        ),
    )
    if isinstance(telemetry, str):
        telemetry = Telemetry(_target(telemetry))

    def run(begin: Callable[[], None], end: Callable[[], int]) -> int:
        if threading.current_thread() is threading.main_thread():
            return _run_until_signal(begin, end, stop)
        begin()
        (stop or threading.Event()).wait()
        return end()

    return _serve(run, application, group, telemetry, announce)


def serve_while(
    wait: Callable[[], object],
    application: Application,
    group: ProcessGroup,
    announce: Callable[[str], object],
    option: str,
) -> int:
    """Does the same as `serve` until `wait` returns, and leaves signals to the caller. `option`
    names the option that gave the addresses."""

    def run(begin: Callable[[], None], end: Callable[[], int]) -> int:
        begin()
        wait()
        return end()

    return _serve(run, application, group, None, announce, option)


def _serve(
    run: Run,
    application: Application,
    group: ProcessGroup,
    telemetry: Telemetry | None,
    announce: Callable[[str], object],
    option: str = "bind",
) -> int:
    with (
        told(_tell_undeclared),
        _listening(group, option) as listeners,
        _metered(group),
        _switch_interval(group),
    ):
        is_main = threading.current_thread() is threading.main_thread()
        limits = native_limits(group, -1) if is_main else NO_LIMITS
        server = Server(
            application,
            listeners,
            group,
            log_fd=open_log(group),
            limits=limits | slow_requests(telemetry),
            reported=telemetry is not None,
        )
        with _reporting(server, group, telemetry) as reporter:

            def begin() -> None:
                scheme = "https" if group.tls else "http"
                for _, address in listeners:
                    announce(str(address) if address.path is not None else f"{scheme}://{address}")
                server.start()

            def end() -> int:
                if reporter is not None:
                    reporter.stopping(STOP_REASON)
                server.stop()
                left = server.join(group.graceful_timeout_s)
                if not left:
                    server.end_interrupter()
                if reporter is not None:
                    reporter.stop(STOP_REASON, graceful=not left and not server.cut_off())
                return left

            return run(begin, end)


def _run_until_signal(
    begin: Callable[[], None],
    end: Callable[[], int],
    stop: threading.Event | None,
    clock: Clock = time.monotonic,
) -> int:
    """Calls `begin`, waits for SIGINT, SIGTERM or the event, and returns the result of `end`. A
    signal more than ONE_SIGNAL_S after the first, a signal after the event, a signal to a forked
    child or one after this call has its former effect: only the program knows whether it ends."""
    own_pid = os.getpid()
    former: dict[signal.Signals, Any] = {}
    first_at: float | None = None

    def restore() -> None:
        for number, handler in former.items():
            # Keep a handler that the program has set meanwhile.
            if signal.getsignal(number) is heed:
                signal.signal(number, handler)

    def heed(number: int, _: object) -> None:
        nonlocal first_at
        if os.getpid() == own_pid:
            if first_at is None:
                first_at = clock()
                return
            if clock() - first_at <= ONE_SIGNAL_S:
                return
        restore()
        signal.raise_signal(signal.Signals(number))

    def is_over() -> bool:
        return first_at is not None or (stop is not None and stop.is_set())

    with Signals() as signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            former[number] = signal.signal(number, heed)
        try:
            begin()
            with _woken_when_set(stop, signals):
                # Other signals of the program end the wait too.
                while not is_over():
                    signals.wait()
            if first_at is None:
                restore()
            return end()
        finally:
            restore()


@contextmanager
def _woken_when_set(stop: threading.Event | None, signals: Signals) -> Iterator[None]:
    """Calls `signals.wake` when the event is set, and sets the event at the end."""
    if stop is None:
        yield
        return

    def wake() -> None:
        stop.wait()
        signals.wake()

    waiter = threading.Thread(target=wake)
    waiter.start()
    try:
        yield
    finally:
        stop.set()
        waiter.join()


def _tell_undeclared(name: str) -> None:
    undeclared = f"the module {name} does not declare that it can run without a GIL"
    if gil_enabled():
        tell(f"headway: the GIL is on: {undeclared} (python -X gil=0 keeps it off all the same)\n")
    else:
        tell(f"headway: {undeclared}, and runs without one\n")


@contextmanager
def _listening(group: ProcessGroup, option: str) -> Iterator[list[Listener]]:
    with ExitStack() as stack:
        listeners = []
        access = identity.socket_access(group)
        for address in group.binds:
            listener = bind(address, group.listen_backlog, access, option)
            stack.callback(listener.socket.close)
            if address.path is not None:
                stack.callback(SocketFile(address.path).remove)
            listeners.append(listener)
        yield listeners


@contextmanager
def _reporting(
    server: Server, group: ProcessGroup, telemetry: Telemetry | None
) -> Iterator[Reporter | None]:
    if telemetry is None:
        yield None
        return
    try:
        reporter = reporting.begin(telemetry, group, reporting.EMBEDDED)
    except CommandError:
        server.abandon()
        raise
    server.report(reporter)
    try:
        yield reporter
    finally:
        # Has an effect only after an error: otherwise the reporter has already stopped.
        reporter.stop("unknown", graceful=False)


def _target(text: str) -> str:
    try:
        return os.path.abspath(SocketPath().parse(text))
    except ValueError:
        raise ValueError(f"telemetry is {text!r}, and must be unix:PATH") from None


@contextmanager
def _metered(group: ProcessGroup) -> Iterator[None]:
    was_installed = gil.is_installed()
    install_meter(group.policy, group.kernel_hints)
    try:
        yield
    finally:
        if not was_installed and gil.is_installed():
            gil.uninstall()


@contextmanager
def _switch_interval(group: ProcessGroup) -> Iterator[None]:
    former = sys.getswitchinterval()
    if group.switch_interval_s is not None:
        sys.setswitchinterval(group.switch_interval_s)
    try:
        yield
    finally:
        sys.setswitchinterval(former)
