"""A running server: the worker threads around the native part.

The threads are ordinary Python threads, so an application sees them as such. Each spends its life
in `_native.server_work`, which drops the GIL and takes it once per request.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headway import __version__, _native
from headway.errors import RequestTimeout
from headway.server.application import Application
from headway.server.binding import Listener
from headway.server.limits import NO_LIMITS, to_ns
from headway.server.settings import ProcessGroup
from headway.server.transport import native_transport, read_tls

# How long a thread outside the application takes, at the very most, to notice the end.
ABORT_TIMEOUT_S = 1.0
# The native part's (`worker::pool`).
MAX_LISTENERS = 64
LOG_FORMS = {"off": 0, "common": 1, "combined": 3, "json": 2}


class PathRow(NamedTuple):
    """Requests of one path. Times in nanoseconds; `None` where nothing is known. `errors` are
    answers with 500 or more, exceptions in mid-body, and bodies unlike their Content-Length."""

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


class Server:
    """Serves one application on its listeners, from `start` until `stop` and `join`."""

    def __init__(
        self,
        application: Application,
        listeners: Sequence[Listener],
        group: ProcessGroup,
        *,
        log_fd: int = -1,
        multiprocess: bool = False,
        limits: Mapping[str, int] = NO_LIMITS,
        tls: object | None = None,
        daemon: bool = True,
    ) -> None:
        """Takes over the listeners' sockets and, unless `group.access_log` is "off", the
        descriptor `log_fd`. Of the group it is what concerns requests that counts here; `limits`
        are those of `native_limits`, `tls` is what `read_tls` returned if it was called before.

        `daemon` says whether threads that hang in the application may be left behind at exit; own-
        GIL sub-interpreters allow no such threads.
        """
        if len(listeners) > MAX_LISTENERS:
            raise ValueError(
                f"{len(listeners)} addresses, and a process listens on at most {MAX_LISTENERS}"
            )
        self.address = listeners[0].address
        self._group = group
        self._multiprocess = multiprocess
        self._interrupts = limits["interrupt_timeout_ns"] > 0
        http = group.http
        self._native = _native.server_open(
            application,
            report_exception,
            [listener.socket.detach() for listener in listeners],
            {
                "log_form": LOG_FORMS[group.access_log],
                "log_fd": log_fd,
                "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)(),
                "max_connections": http.max_connections,
                "max_target_bytes": http.max_target_bytes,
                "max_head_bytes": http.max_head_bytes,
                "max_fields": http.max_fields,
                "max_body_bytes": http.max_body_bytes,
                "head_timeout_ns": to_ns(http.head_timeout_s),
                "body_timeout_ns": to_ns(http.body_timeout_s),
                "keep_alive_timeout_ns": to_ns(http.keep_alive_timeout_s),
                "write_timeout_ns": to_ns(http.write_timeout_s),
                **native_transport(group, tls or read_tls(group)),
                **limits,
            },
        )
        self._count_lock = threading.Lock()
        self._serving = group.threads
        self._when_over: Callable[[], None] = lambda: None
        self._threads = [
            threading.Thread(target=self._work, name=f"headway-worker-{number}", daemon=daemon)
            for number in range(1, group.threads + 1)
        ]

    def start(self, when_over: Callable[[], None] | None = None) -> None:
        """Starts to serve. The last of the threads to end calls `when_over`."""
        self._when_over = when_over or self._when_over
        for thread in self._threads:
            thread.start()
        if self._interrupts:
            # Never waited for: it ends a moment after the server.
            threading.Thread(
                target=self._interrupt, name="headway-interrupter", daemon=True
            ).start()

    def stop(self, keep_idle_s: float = 0.0) -> None:
        """Stops accepting, lets requests end that were sent before; a connection without one is
        kept for so long, since its client may be about to send. Returns at once; see `join`.
        Called again it changes for how long."""
        _native.server_stop(self._native, to_ns(keep_idle_s))

    def join(self, timeout_s: float) -> int:
        """Waits for the worker threads after `stop`. Whatever connections are open after the
        timeout are given up; returns how many threads are in the application even then."""
        if self._join(timeout_s):
            _native.server_abort(self._native)
        return self._join(ABORT_TIMEOUT_S)

    def _join(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        return sum(thread.is_alive() for thread in self._threads)

    def requests(self) -> list[PathRow]:
        """What was served so far, by path, the most requested first. At any time."""
        return [PathRow(*row) for row in _native.server_requests(self._native)]

    def _work(self) -> None:
        try:
            _native.server_work(self._native, self._environ())
        finally:
            with self._count_lock:
                self._serving -= 1
                is_last = self._serving == 0
            if is_last:
                self._when_over()

    def _interrupt(self) -> None:
        while _native.server_interrupt(self._native, RequestTimeout):
            pass

    def _environ(self) -> dict[str, object]:
        """The part of the environ that is the same for every request: a dict per thread. The native
        part adds its `wsgi.file_wrapper`."""
        return {
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_SOFTWARE": f"headway/{__version__}",
            "SERVER_NAME": self.address.host,
            "SERVER_PORT": str(self.address.port),
            "SCRIPT_NAME": "",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr if sys.stderr is not None else open(os.devnull, "w"),
            "wsgi.multithread": self._group.threads > 1,
            "wsgi.multiprocess": self._multiprocess,
            "wsgi.run_once": False,
            # Not in PEP 3333: the input ends where the body does, chunked or not.
            "wsgi.input_terminated": True,
        }


def report_exception(exception: BaseException, request: str) -> None:
    """Tells stderr what an application raised."""
    lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
    tell(f"headway serve: in {request}\n{''.join(lines)}")


def tell(text: str) -> None:
    """To stderr, in one write so that threads do not mix. An application may have closed it, or put
    anything in its place: what cannot be told is lost."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
        sys.stderr.flush()
