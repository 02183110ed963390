"""A running server: the worker threads around the native part.

The threads are ordinary Python threads, and applications see them as such. Each thread runs
`_native.server_work`, which releases the GIL and takes it once per request.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headway import _native
from headway.errors import CommandError, RequestTimeout
from headway.meter.reporter import Reporter
from headway.server.binding import Listener
from headway.server.free_threading import gil_enabled
from headway.server.settings import LOG_FORMS, MAX_LISTENERS, ProcessGroup
from headway.server.stderr import report_exception
from headway.server.worker import environ
from headway.server.worker.application import Application
from headway.server.worker.interpreter_manager import InterpreterManager
from headway.server.worker.interpreter_slots import Layout
from headway.server.worker.native_limits import NO_LIMITS, to_ns
from headway.server.worker.transport import native_handover, native_transport, read_tls

# The longest time that a thread outside the application takes to notice the end.
ABORT_TIMEOUT_S = 1.0


class PathRow(NamedTuple):
    """The requests of one path in one interpreter. Times are in nanoseconds; `None` means unknown.
    `errors` counts responses with a status of 500 or more, exceptions while a body is sent, and
    bodies that contradict their Content-Length."""

    interpreter: str
    path: str
    requests: int
    errors: int
    response_p50_ns: int | None
    response_p99_ns: int | None
    gil_wait_p50_ns: int | None
    gil_wait_p99_ns: int | None
    gil_wait_total_ns: int | None
    application_total_ns: int
    cpu_total_ns: int


class InterpreterRow(NamedTuple):
    """One slot of an application group: the number of requests that its interpreters have had, and
    the number of interpreters it has had, which is 0 until the first is needed."""

    name: str
    requests: int
    made: int


class Server:
    """Serves a process group's applications on its listeners, from `start` to `stop` and `join`."""

    def __init__(
        self,
        application: Application | None,
        listeners: Sequence[Listener],
        group: ProcessGroup,
        *,
        log_fd: int = -1,
        multiprocess: bool = False,
        handover: tuple[int, int] | None = None,
        limits: Mapping[str, int] = NO_LIMITS,
        tls: object | None = None,
        path: Sequence[str] = (),
        daemon: bool = True,
        reported: bool = False,
    ) -> None:
        """Takes over the listeners' sockets, the descriptors `handover` and, unless
        `group.access_log` is "off", `log_fd`. Only the group's settings for requests matter here.
        `limits` is the result of `native_limits`, `tls` the result of an earlier `read_tls`, if
        any, and `path` is sys.path for the sub-interpreters of the group.

        The calling interpreter serves `application`, as the main interpreter of the group.
        Sub-interpreters load their own applications, which may raise `CommandError`.

        `daemon` says whether threads that hang in the application may be left behind at exit; own-
        GIL sub-interpreters allow no such threads. With `reported`, the caller calls `report`
        before `start`.
        """
        if len(listeners) > MAX_LISTENERS:
            raise ValueError(
                f"{len(listeners)} addresses, and a process listens on at most {MAX_LISTENERS}"
            )
        self.address = listeners[0].address
        self._group = group
        self._interrupts = limits["interrupt_timeout_ns"] > 0
        self._interrupter: threading.Thread | None = None
        self._layout = layout = Layout(group)
        http = group.http
        # Before the sockets are taken over: nobody would close them after an error.
        transport = native_transport(group, tls or read_tls(group))
        if group.is_background:
            # The group's other processes accept connections, and hand them over.
            for listener in listeners:
                listener.socket.close()
        accepting = [] if group.is_background else listeners
        self._native = _native.server_open(
            [listener.socket.detach() for listener in accepting],
            layout.routes,
            layout.native_groups,
            {
                "log_form": LOG_FORMS[group.access_log],
                "log_fd": log_fd,
                "parallel": not gil_enabled() or layout.gils > 1,
                "max_connections": http.max_connections,
                "max_target_bytes": http.max_target_bytes,
                "max_head_bytes": http.max_head_bytes,
                "max_fields": http.max_fields,
                "max_body_bytes": http.max_body_bytes,
                "normalizes_path": http.normalize_path,
                "head_timeout_ns": to_ns(http.head_timeout_s),
                "body_timeout_ns": to_ns(http.body_timeout_s),
                "keep_alive_timeout_ns": to_ns(http.keep_alive_timeout_s),
                "write_timeout_ns": to_ns(http.write_timeout_s),
                "reported": reported,
                **native_handover(group, handover),
                **transport,
                **limits,
            },
        )
        configured = {name: _as_environ_has_it(value) for name, value in group.environ.items()}
        # Environ variables for each listener.
        self._about = [
            {**configured, **listener.address.environ, "headway.process_group": group.name}
            for listener in listeners
        ]
        self._manager: InterpreterManager | None = None
        for index, slot in enumerate(layout.slots):
            if slot.is_main:
                self._admit(index, application, slot.about(group.threads, multiprocess))
        if not all(slot.is_main for slot in layout.slots):
            self._manager = InterpreterManager(
                self._native, group, layout.slots, self._about, multiprocess, path, reported
            )
            try:
                self._manager.settle()
            except CommandError:
                _native.server_abort(self._native)
                raise
        self._count_lock = threading.Lock()
        self._serving = group.threads
        self._when_over: Callable[[], None] = lambda: None
        self._threads = [
            threading.Thread(target=self._work, name=f"headway-worker-{number}", daemon=daemon)
            for number in range(1, group.threads + 1)
        ]

    def _admit(
        self, index: int, application: Application | None, of_slot: Mapping[str, object]
    ) -> None:
        about = [{**each, **of_slot} for each in self._about]
        interpreter = _native.interpreter_of_caller(
            application, report_exception, lambda: environ.templates(about), RequestTimeout
        )
        _native.server_admit(self._native, index, interpreter)

    def start(self, when_over: Callable[[], None] | None = None) -> None:
        """Starts to serve. The last worker thread to end calls `when_over`."""
        self._when_over = when_over or self._when_over
        if self._interrupts:
            # First, because up to CPython 3.12 no thread of the main interpreter gets a shared GIL
            # while a request computes in another interpreter.
            self._interrupter = threading.Thread(
                target=self._interrupt, name="headway-interrupter", daemon=True
            )
            self._interrupter.start()
        for thread in self._threads:
            thread.start()

    def report(self, reporter: Reporter) -> None:
        """Adds this server to the reports of `reporter`."""
        slots = [
            (each.group.name, "" if each.is_main else each.name, each.group.own_gil)
            for each in self._layout.slots
        ]
        reporter.add_server(self._native, self._group.threads, slots)

    def stop(self, keep_idle_s: float = 0.0) -> None:
        """Stops accepting, and lets the requests end that were sent before. An idle connection is
        kept for `keep_idle_s`, because its client may be about to send. Returns at once; see
        `join`. A further call changes `keep_idle_s`."""
        _native.server_stop(self._native, to_ns(keep_idle_s))

    def join(self, timeout_s: float) -> int:
        """Waits for the worker threads after `stop`. Abandons the connections that are still open
        after the timeout. Returns the number of threads that are in the application even then."""
        if self._join(timeout_s):
            _native.server_abort(self._native)
        return self._join(ABORT_TIMEOUT_S)

    def cut_off(self) -> int:
        """The number of requests that `join` has cut off, and from which the application has
        returned."""
        return _native.server_cut_off(self._native)

    def abandon(self) -> None:
        """Ends the server without serving; call it instead of `start`."""
        _native.server_abort(self._native)

    def end_interpreters(self) -> None:
        """Waits until the sub-interpreters have ended, for as long as the applications' atexit
        handlers and threads take. Call it after `join` or `abandon`."""
        if self._manager is not None:
            self._manager.join()

    def end_interrupter(self) -> None:
        """Waits for the thread that interrupts requests; call it after `join` has returned 0. That
        thread ends after the worker threads, once it has the GIL. So the program has no thread of
        the server any more."""
        if self._interrupter is not None:
            self._interrupter.join()

    def _join(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        return sum(thread.is_alive() for thread in self._threads)

    def requests(self) -> list[PathRow]:
        """The requests served so far, by interpreter and path, the most requested path first. Can
        be called at any time."""
        slots = self._layout.slots
        return [
            PathRow(slots[row[0]].name, *row[1:]) for row in _native.server_requests(self._native)
        ]

    def begin_block(self) -> None:
        """Counts the requests that come from now on in a block, which replaces the one before."""
        _native.server_begin_block(self._native)

    def end_block(self) -> None:
        """Counts no requests in the block that come from now on."""
        _native.server_end_block(self._native)

    def block(self) -> list[tuple[str, int, int, dict[str, Any]]]:
        """The path, errors, CPU time in nanoseconds and distribution of the responses for the
        requests of the block that have been answered."""
        return _native.server_block(self._native)

    def interpreters(self, rows: Iterable[PathRow]) -> list[InterpreterRow]:
        """A row for each slot; empty without sub-interpreters. `rows` is the current result of
        `requests`."""
        manager = self._manager
        if manager is None:
            return []
        counts = Counter[str]()
        for row in rows:
            counts[row.interpreter] += row.requests
        return [
            InterpreterRow(slot.name, counts[slot.name], 1 if slot.is_main else manager.made(index))
            for index, slot in enumerate(self._layout.slots)
        ]

    def _work(self) -> None:
        try:
            _native.server_work(self._native)
        finally:
            with self._count_lock:
                self._serving -= 1
                is_last = self._serving == 0
            if is_last:
                self._when_over()

    def _interrupt(self) -> None:
        while _native.server_interrupt(self._native):
            pass


def _as_environ_has_it(text: str) -> str:
    """The text with a character for each byte of its UTF-8 form, as PEP 3333 requires."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
