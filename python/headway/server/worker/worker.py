"""A worker process: serves its group's applications until the supervisor stops it.

The main thread handles signals and the control socket; worker threads (`serving.Server`) serve
requests. A newer process of the group may replace a worker at any time. The supervisor then sends
the worker the command `retire`: the worker answers its requests, and keeps idle connections for a
moment, because their clients may be about to send. If the supervisor goes away, the worker ends as
on SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headway import gil
from headway.address import parse_address
from headway.errors import CommandError, Unsupported, reason_of
from headway.meter.reporter import Reporter
from headway.server.binding import Listener
from headway.server.control import Control, Gone
from headway.server.poll_timeout import poll_timeout_ms
from headway.server.settings import DEFAULT_POLICY, ProcessGroup
from headway.server.signals import TERMINALS_SIGNALS, Signals
from headway.server.stderr import say, tell
from headway.server.task import Task
from headway.server.worker import closing_table, reporting, trial
from headway.server.worker.application import Application
from headway.server.worker.ending import end_without_finalization
from headway.server.worker.forks import leave_signals_to_forks
from headway.server.worker.native_limits import drain_s, native_limits, slow_requests
from headway.server.worker.serving import Server

# The time that a retiring worker keeps an idle connection; nginx calls it keepalive_min_timeout.
KEEP_IDLE_S = 5.0

# A process that is told to end waits at most this long for the end of its handover queue.
HANDOVER_END_S = 2.0

# The events of the main thread: the supervisor's commands, a signal, the end of all threads.
SERVE, RETIRE, TERMINATE, OVER = b"S", b"R", b"T", b"O"
# The reasons for the end of the process that apply unless the supervisor gives one.
SHUT_DOWN, ABANDONED = "shutdown_signal", "unknown"
COMMANDS = {"serve": SERVE, "retire": RETIRE}


class Prepared(NamedTuple):
    """The state of a process before it serves. A process that passes it on also passes on the
    ownership of its descriptors."""

    task: Task
    # The application of the main interpreter, if any.
    application: Application | None
    log_fd: int
    tls: object | None
    # sys.path before `search_path` extends it; sub-interpreters extend it themselves.
    path: Sequence[str]


class Worker:
    """One run of a worker. The main thread constructs and runs it."""

    def __init__(self, control: Control, prepared: Prepared) -> None:
        """Raises `CommandError`."""
        task = prepared.task
        group = task.group
        self._control = control
        self._task = task
        install_meter(group.policy, group.kernel_hints)
        self._handover = task.handover.of(group) if task.handover is not None else None
        listeners = [
            Listener(socket.socket(fileno=fd), parse_address(address))
            for fd, address in task.listeners
        ]
        try:
            self._server = Server(
                prepared.application,
                listeners,
                group,
                log_fd=prepared.log_fd,
                multiprocess=task.multiprocess,
                handover=self._handover,
                limits=native_limits(group, control.fileno()) | slow_requests(task.telemetry),
                tls=prepared.tls,
                path=prepared.path,
                reported=task.telemetry is not None,
            )
        except ValueError as error:
            raise CommandError(f"process group {group.name!r}: {error}", exit_code=2) from None
        except OSError as error:
            raise CommandError(cannot_serve(group, reason_of(error))) from None
        self._reporter: Reporter | None = None
        if task.telemetry is not None:
            try:
                self._reporter = reporting.begin(task.telemetry, group, reporting.SERVE)
            except CommandError:
                self._server.abandon()
                raise
            self._server.report(self._reporter)
            # The supervisor can then report for this process if the process cannot.
            control.send({"event": "reporting", "started": self._reporter.started})
        self._reason, self._detail = SHUT_DOWN, ""
        self._has_told_stopping = False
        # Signal handlers and the last thread to end write bytes to this pipe. A handler may
        # interrupt its own thread anywhere, also where it holds a lock.
        self._read_fd, self._write_fd = os.pipe()
        self._signals = Signals()
        self._drain_s = drain_s(group)
        self._has_supervisor = True
        self._has_sigterm = False
        self._is_serving = False
        # The time at which requests in progress are abandoned; set when accepting stops.
        self._deadline: float | None = None

    def run(self) -> int:
        """Serves; returns the exit status."""
        self._catch_signals()
        self._control.send({"event": "ready", "switch_interval_s": sys.getswitchinterval()})
        while (word := self._next_word()) not in (TERMINATE, OVER):
            if word == SERVE and not self._is_serving:
                self._serve()
            elif word == RETIRE and self._is_serving and self._deadline is None:
                self._tell_stopping()
                self._deadline = time.monotonic() + self._drain_s
                self._server.stop(min(KEEP_IDLE_S, self._drain_s / 2))
        if not self._is_serving and self._next_command() == SERVE:
            # A signal may overtake the command, and connections have been waiting since then.
            self._serve()
        self._tell_stopping()
        if self._is_serving:
            return self._finish()
        self._server.abandon()
        self._server.end_interpreters()
        self._tell_stopped(graceful=True)
        return 0

    def _serve(self) -> None:
        self._is_serving = True
        try:
            self._server.start(self._note_end)
        except RuntimeError as error:
            # Some of the server's threads may run already, so it cannot be abandoned.
            say(cannot_serve(self._task.group, str(error)))
            end_without_finalization(1)

    def _finish(self) -> int:
        """Answers the remaining requests and reports the end; returns the exit status."""
        if self._handover is not None and self._deadline is None:
            self._await_end_of_handover(self._handover[0])
        self._server.stop()
        self._control.send({"event": "closed"}, wait=False)
        is_replaced = self._deadline is not None
        if self._deadline is None:
            self._deadline = time.monotonic() + self._drain_s
        left = self._server.join(max(self._deadline - time.monotonic(), 0.0))
        cut_off = left + self._server.cut_off()
        self._control.send({"event": "stopped"}, wait=False)
        if self._task.shows_table and not is_replaced:
            self._show_table()
        if not left:
            self._server.end_interrupter()
            self._server.end_interpreters()
        self._tell_stopped(graceful=not cut_off)
        if not cut_off:
            return 0
        threads = "1 thread was" if cut_off == 1 else f"{cut_off} threads were"
        limit = "graceful" if self._task.group.graceful_timeout_s else "shutdown"
        say(
            f"{threads} still in the application after {self._drain_s:g} s "
            f"(--{limit}-timeout) and cut off"
        )
        if left:
            # A thread that hangs in the application would block the finalization of the
            # interpreter, or be killed in the middle of it.
            end_without_finalization(1)
        return 1

    def _await_end_of_handover(self, receives: int) -> None:
        """Waits until no process can hand connections over to this one any more: what comes after
        the end would be lost. The supervisor sees to that when the server stops, and has told this
        process to end after it, but a signal to all processes comes to this one first. The server
        owns the descriptor, and serves until it is stopped."""
        if not self._has_supervisor:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(receives)) as queue:
                queue.shutdown(socket.SHUT_RD)
            return
        poll = select.poll()
        poll.register(receives, select.POLLRDHUP)
        poll.poll(HANDOVER_END_S * 1e3)

    def _tell_stopping(self) -> None:
        if self._reporter is not None and not self._has_told_stopping:
            self._has_told_stopping = True
            self._reporter.stopping(self._reason, self._detail)

    def _tell_stopped(self, *, graceful: bool) -> None:
        if self._reporter is not None:
            self._reporter.stop(self._reason, self._detail, graceful=graceful)
            self._control.send({"event": "reported"}, wait=False)

    def _catch_signals(self) -> None:
        """Installs the handlers, after the import of the application, which may have its own."""
        signal.signal(signal.SIGTERM, self._stop_on_signal)
        for number in TERMINALS_SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGXCPU, self._tell_cpu_limit)
        # A signal may reach any thread, and then does not interrupt the main thread's poll.
        self._signals.begin()
        leave_signals_to_forks()

    def _stop_on_signal(self, *_: object) -> None:
        # Further SIGTERMs change nothing: a signal to the whole server reaches this process
        # directly and again through the supervisor, which uses SIGKILL if the end must not wait.
        if not self._has_sigterm:
            self._has_sigterm = True
            os.write(self._write_fd, TERMINATE)

    def _note_end(self) -> None:
        os.write(self._write_fd, OVER)

    def _tell_cpu_limit(self, *_: object) -> None:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        limit_s = self._task.group.cpu_time_limit_s
        message = {"event": "limit", "reason": "cpu_time_limit", "detail": f"{limit_s:g} s"}
        self._control.send(message, wait=False)

    def _next_word(self) -> bytes:
        """Waits for the next event: SERVE, RETIRE, TERMINATE or OVER."""
        while True:
            poll = select.poll()
            poll.register(self._read_fd, select.POLLIN)
            poll.register(self._signals, select.POLLIN)
            if self._has_supervisor:
                poll.register(self._control, select.POLLIN)
            ready = [
                fd for fd, _ in poll.poll(poll_timeout_ms(self._deadlines(), time.monotonic()))
            ]
            if self._signals.fileno() in ready:
                # The signal's handler has run by now, or runs before the next instruction.
                self._signals.read()
                continue
            if self._read_fd in ready:
                return os.read(self._read_fd, 1)
            if not ready:
                if self._deadline is not None and time.monotonic() >= self._deadline:
                    return TERMINATE
                continue
            word = self._next_command()
            if word is not None:
                return word

    def _next_command(self) -> bytes | None:
        """The supervisor's next command; TERMINATE if the supervisor has gone, `None` if there is
        no command for the main loop. Obeys `count`, `set gil` and `block`."""
        try:
            message = self._control.receive(wait=False) or {}
        except Gone:
            self._has_supervisor = False
            self._reason, self._detail = ABANDONED, "the supervisor has gone"
            return TERMINATE
        command = message.get("command", "")
        if "reason" in message:
            self._reason, self._detail = str(message["reason"]), str(message.get("detail", ""))
        if command == "count":
            rows = self._server.requests()
            message = {
                "event": "requests",
                "count": sum(row.requests for row in rows),
                "interpreters": [each._asdict() for each in self._server.interpreters(rows)],
            }
            self._control.send(message, wait=False)
        elif command == "set gil":
            trial.set_gil(self._task.group, message)
        elif command == "block":
            counts = trial.act_on_block(self._server, message)
            if counts is not None:
                self._control.send({"event": "block", **counts}, wait=False)
        return COMMANDS.get(command)

    def _deadlines(self) -> Iterator[float]:
        if self._deadline is not None:
            yield self._deadline

    def _show_table(self) -> None:
        report = gil.snapshot().report() if gil.is_installed() else None
        text = "\n" + closing_table.draw(self._server.requests(), report)
        if self._task.labelled:
            group, number = self._task.group.name, self._task.number
            text = f"\nProcess {number} of group {group} (pid {os.getpid()}):{text}"
        tell(text)


def cannot_serve(group: ProcessGroup, reason: str) -> str:
    """The message for a lack of memory or descriptors, most likely due to a limit of the group."""
    limits = [
        f"{name} {size}"
        for name, size in (
            ("memory-limit", group.memory_limit_bytes),
            ("virtual-memory-limit", group.virtual_memory_limit_bytes),
        )
        if size
    ]
    within = f", within {' and '.join(limits)}" if limits else ""
    return f"process group {group.name!r}: cannot serve: {reason}{within}"


def install_meter(policy: str | None, kernel_hints: bool) -> None:
    """Installs the meter and the policy. Serving continues without the meter, but not without a
    requested policy. `None` keeps the current policy if the meter is already installed. Raises
    `CommandError`."""
    default = None if gil.is_installed() else DEFAULT_POLICY
    try:
        gil.install(policy or default, kernel_hints=kernel_hints)
    except Unsupported as reason:
        if policy not in (None, "interval"):
            raise CommandError(f"--policy {policy}: {reason}") from None
        say(f"GIL waits are not measured: {reason}")
