"""The reporter of this process: a native thread that tells a recorder what the process does, once
an interval, in mod_wsgi's wire format. It needs no GIL, and waits for nobody.

Imports nothing that an interpreter has not loaded anyway: it runs inside programs that `headway
run` starts, too. What is told is decided by the native part (`crates/reporter`, `crates/server`);
here is what a process says of itself, and what becomes of the thread at a fork.
"""

from __future__ import annotations

import os
import sys
import time

# `typing` is not loaded in every program that is reported on.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_INTERVAL_S = 1.0
MIN_INTERVAL_S = 0.5
# What the main one is called in reports.
MAIN_INTERPRETER = ""


class Reporter:
    """Reports from the moment on that it is made until `stop`."""

    def __init__(
        self,
        path: str,
        interval_s: float,
        identity: Mapping[str, object],
        *,
        kind: str,
        group: str = "",
    ) -> None:
        """`kind` is serve, run or embedded, `group` the process group; `identity` has other fields
        that each datagram is to have. Raises `OSError` for want of descriptors or threads, and
        `ValueError` for a path that no socket can have."""
        from headway import _native
        from headway.meter import stacks

        self._native = _native
        stacks.prepare()
        _native.gc_watch(MAIN_INTERPRETER)
        self._pid = os.getpid()
        self.started = time.time()
        fields = {**own_identity(), **identity, "process_kind": kind, "process_group": group}
        self._handle = _native.telemetry_start(os.fsencode(path), interval_s, self.started, fields)

    def add_server(
        self, server: object, threads: int, places: Sequence[tuple[str, str, bool]]
    ) -> None:
        """Reports on a native server, too; see `_native.telemetry_add_server`."""
        self._native.telemetry_add_server(self._handle, server, threads, places)

    def stopping(self, reason: str, detail: str = "") -> None:
        self._native.telemetry_stopping(self._handle, reason, as_text(detail))

    def stop(self, reason: str, detail: str = "", *, graceful: bool = True) -> None:
        """What was not told yet, and that the process ends. In a forked child nothing."""
        self._native.telemetry_stop(self._handle, reason, as_text(detail), graceful)

    @property
    def waker(self) -> int:
        return self._native.telemetry_waker(self._handle)

    def pause(self) -> None:
        self._native.telemetry_pause(self._handle)

    def resume(self) -> None:
        self._native.telemetry_resume(self._handle)


class ReporterAcrossForks:
    """Reports on a process that may fork: children have a reporter of their own. While the process
    forks the thread is gone, since from 3.12 on CPython warns of forks in a process of several."""

    def __init__(
        self, path: str, interval_s: float, identity: Mapping[str, object], *, kind: str
    ) -> None:
        """Raises what `Reporter` does."""

        def begin() -> Reporter:
            return Reporter(path, interval_s, identity, kind=kind)

        def begin_in_child() -> None:
            try:  # noqa: SIM105 - contextlib is not loaded in every program
                self._reporter = begin()
            except (OSError, ValueError):
                pass  # for want of descriptors, say: the child does without

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
        """Of whichever process calls this."""
        self._reporter.stop(reason, detail)


def own_identity() -> dict[str, object]:
    """What any process says of itself."""
    from headway import _native

    name, _, version = _native.SERVER_SOFTWARE.partition("/")
    return {
        # What mod_wsgi's own viewer shows at its top.
        "mod_wsgi_version": f"{name} {version}",
        "headway_version": version,
        "python_version": sys.version.split(maxsplit=1)[0],
        "hostname": as_text(os.uname().nodename),
        "process_parent_pid": os.getppid(),
    }


def as_text(text: str) -> str:
    """Without what cannot be in a datagram: bytes of names that are not UTF-8, and zeros."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
