"""The reporter of this process: a native thread that sends a report to a recorder once an interval,
in mod_wsgi's wire format. The thread neither takes the GIL nor blocks on the recorder.

This module imports only what an interpreter has loaded anyway, because it also runs inside programs
that `headway run` starts. The native part (`crates/reporter`, `crates/server`) decides the contents
of reports; this module has the identity of the process and handles forks.
"""

from __future__ import annotations

import os
import sys
import time

# Not every program that reports has loaded `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_INTERVAL_S = 1.0
MIN_INTERVAL_S = 0.5
# The name of the main interpreter in reports.
MAIN_INTERPRETER = ""


class Reporter:
    """Reports from its construction until `stop`."""

    def __init__(
        self,
        path: str,
        interval_s: float,
        identity: Mapping[str, object],
        *,
        kind: str,
        group: str = "",
    ) -> None:
        """`kind` is serve, run or embedded, `group` the process group; `identity` has further
        fields for each datagram. Raises `OSError` if descriptors or threads are exhausted, and
        `ValueError` for a path that no socket can have."""
        from headway import _native
        from headway.meter import engine, stacks

        self._native = _native
        stacks.prepare()
        _native.gc_watch(MAIN_INTERPRETER)
        self._pid = os.getpid()
        self.started = time.time()
        fields = {**own_identity(), **identity, "process_kind": kind, "process_group": group}
        self._handle = _native.telemetry_start(os.fsencode(path), interval_s, self.started, fields)
        engine.report_profile()

    def add_server(
        self, server: object, threads: int, places: Sequence[tuple[str, str, bool]]
    ) -> None:
        """Adds a native server to the reports; see `_native.telemetry_add_server`."""
        self._native.telemetry_add_server(self._handle, server, threads, places)

    def stopping(self, reason: str, detail: str = "") -> None:
        self._native.telemetry_stopping(self._handle, reason, as_text(detail))

    def stop(self, reason: str, detail: str = "", *, graceful: bool = True) -> None:
        """Sends the rest of the report and the end of the process. Does nothing in a forked
        child."""
        self._native.telemetry_stop(self._handle, reason, as_text(detail), graceful)
        if os.getpid() == self._pid:
            self._native.profile_report_no_more()

    @property
    def waker(self) -> int:
        return self._native.telemetry_waker(self._handle)

    def pause(self) -> None:
        self._native.telemetry_pause(self._handle)

    def resume(self) -> None:
        self._native.telemetry_resume(self._handle)


class ReporterAcrossForks:
    """Reports on a process that may fork: each child has a reporter of its own. The reporting
    thread is stopped during a fork, because CPython 3.12 and later warn about forks in a process
    with several threads."""

    def __init__(
        self,
        path: str,
        interval_s: float,
        identity: Mapping[str, object],
        *,
        kind: str,
        group: str = "",
    ) -> None:
        """Raises the exceptions of `Reporter`."""

        def begin() -> Reporter:
            return Reporter(path, interval_s, identity, kind=kind, group=group)

        def begin_in_child() -> None:
            try:  # noqa: SIM105 - contextlib is not loaded in every program
                self._reporter = begin()
            except (OSError, ValueError):
                pass  # descriptors are exhausted, for example: the child does not report

        self._reporter = begin()
        os.register_at_fork(
            before=lambda: self._reporter.pause(),
            after_in_parent=lambda: self._reporter.resume(),
            after_in_child=begin_in_child,
        )

    @property
    def waker(self) -> int:
        """For `_native.report_on_signals`."""
        return self._reporter.waker

    def stop(self, reason: str, detail: str = "") -> None:
        """Stops the reporter of the calling process."""
        self._reporter.stop(reason, detail)


def own_identity() -> dict[str, object]:
    """The fields that identify any process."""
    from headway import _native

    name, _, version = _native.SERVER_SOFTWARE.partition("/")
    return {
        # mod_wsgi's own viewer shows this field at its top.
        "mod_wsgi_version": f"{name} {version}",
        "headway_version": version,
        "python_version": sys.version.split(maxsplit=1)[0],
        "hostname": as_text(os.uname().nodename),
        "process_parent_pid": os.getppid(),
    }


def as_text(text: str) -> str:
    """`text` without what a datagram cannot contain: bytes that are not UTF-8, and zeros."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
