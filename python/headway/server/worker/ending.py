"""Ends a process that the supervisor started: as Python does, unless that is not safe."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn

from headway import _native
from headway.errors import CommandError
from headway.server.control import Control
from headway.server.settings import ProcessGroup
from headway.server.stderr import flush_streams
from headway.server.worker.application import ImportFailed

MAX_DETAILS = 30_000


def tell_failure(control: Control, error: CommandError) -> int:
    """Reports to the supervisor why the process cannot serve; returns the exit status."""
    details = error.details if isinstance(error, ImportFailed) else ""
    control.send(
        {
            "event": "failed",
            "exit_code": error.exit_code,
            "message": str(error),
            "details": details[-MAX_DETAILS:],
        }
    )
    return error.exit_code


def end(status: int, group: ProcessGroup) -> NoReturn:
    """Ends the process; call it in the main thread. In every case it first waits for the
    application's threads and runs the application's atexit handlers."""
    if not (len(_native.gil_interpreters()) > 1 or _has_names_of_others(group)):
        sys.exit(status)
    # If sub-interpreters are left, the finalization of the main interpreter ends the process with
    # an error.
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    end_without_finalization(status)


def end_without_finalization(status: int) -> NoReturn:
    flush_streams()
    os._exit(status)


def _has_names_of_others(group: ProcessGroup) -> bool:
    """Whether the finalization of the main interpreter may abort. If an own-GIL interpreter was
    the first to call a C function with keyword arguments, CPython up to 3.12.3 frees the names of
    the arguments as if they belonged to the main interpreter, and aborts (gh-119213)."""
    return sys.version_info < (3, 12, 4) and any(each.own_gil for each in group.application_groups)
