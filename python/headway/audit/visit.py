"""The code inside an interpreter that is tried: it imports modules, or the application, and reports
the outcome. It imports as little as possible, because this is the interpreter under test."""

from __future__ import annotations

import sys

from headway.audit.event_pipe import EventPipe, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run(
    fd: int, timeout_s: float, phase: str, names: Sequence[str], application: str | None
) -> None:
    """Sends `importing` before each import, and `imported` or `failed` after it."""
    events = EventPipe(fd, timeout_s)
    for name in names:
        events.send("importing", module=name, phase=phase)
        try:
            __import__(name)
        except BaseException as error:
            events.send("failed", module=name, phase=phase, **describe(error))
        else:
            events.send("imported", module=name, phase=phase)
    if application is not None:
        _load(application, phase, events)


def _load(application: str, phase: str, events: EventPipe) -> None:
    from headway.audit.inventory import extension_modules
    from headway.server.worker.application import ImportFailed, load_application

    events.send("importing", module=None, phase=phase)
    try:
        load_application(application)
    except ImportFailed as error:
        # The application's own exception is more informative than the one that wraps it.
        cause = error.__context__ or error
        events.send("failed", module=None, phase=phase, **describe(cause))
    except BaseException as error:
        events.send("failed", module=None, phase=phase, **describe(error))
    else:
        present = [name for name, _ in extension_modules()]
        events.send("imported", module=None, phase=phase, present=present)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
