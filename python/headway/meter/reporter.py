"""The reporter of this process: a native thread that sends a report to a recorder once an interval,
in mod_wsgi's wire format. The thread neither takes the GIL nor blocks on the recorder.

This module imports only what an interpreter has loaded anyway, because it also runs inside programs
that `headway run` starts. The native part (`crates/reporter`, `crates/server`) decides the contents
of reports; this module has the identity of the process.
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
        across_forks: bool = False,
    ) -> None:
        """`kind` is serve, run or embedded, `group` the process group; `identity` has further
        fields for each datagram. With `across_forks`, each forked child has a reporter of its own,
        which takes the place of this one there. Raises `OSError` if descriptors or threads are
        exhausted, and `ValueError` for a path that no socket can have."""
        from headway import _native
        from headway.meter import engine, forks, stacks

        self._native = _native
        stacks.prepare()
        _native.gc_watch(MAIN_INTERPRETER)
        self.started = time.time()
        fields = {**own_identity(), **identity, "process_kind": kind, "process_group": group}
        self._handle = _native.telemetry_start(
            os.fsencode(path), interval_s, self.started, fields, across_forks
        )
        if across_forks:
            forks.follow()
        engine.report_profile()

    def add_server(
        self, server: object, threads: int, slots: Sequence[tuple[str, str, bool]]
    ) -> None:
        """Adds a native server to the reports; see `_native.telemetry_add_server`."""
        self._native.telemetry_add_server(self._handle, server, threads, slots)

    def stopping(self, reason: str, detail: str = "") -> None:
        self._native.telemetry_stopping(self._handle, reason, as_text(detail))

    def stop(self, reason: str, detail: str = "", *, graceful: bool = True) -> None:
        """Sends the rest of the report and the end of the process. Does nothing in a forked child
        without a reporter of its own."""
        self._native.telemetry_stop(self._handle, reason, as_text(detail), graceful)

    @property
    def waker(self) -> int:
        return self._native.telemetry_waker(self._handle)


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
