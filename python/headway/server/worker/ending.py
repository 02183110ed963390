"""How a process that the supervisor started ends: as Python does, unless that is not safe."""

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
from headway.server.worker.application import ImportFailed

MAX_DETAILS = 30_000


def tell_failure(control: Control, error: CommandError) -> int:
    """Tells the supervisor why the process does not come to serve; returns its exit status."""
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
    """For the main thread. The application's threads are waited for and its atexit handlers run in
    any case."""
    if not (len(_native.gil_interpreters()) > 1 or _has_names_of_others(group)):
        sys.exit(status)
    # With interpreters left the end of the main one ends the process with an error.
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    end_without_finalization(status)


def end_without_finalization(status: int) -> NoReturn:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(status)


def _has_names_of_others(group: ProcessGroup) -> bool:
    """Up to CPython 3.12.3, where an own-GIL interpreter was the first to call a C function with
    keyword arguments, the end of the main one frees their names as its own, and aborts
    (gh-119213)."""
    return sys.version_info < (3, 12, 4) and any(each.own_gil for each in group.application_groups)
