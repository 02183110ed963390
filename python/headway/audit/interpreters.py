"""Imports modules, or the application, in two sub-interpreters of a child, and ends both.

Two are needed, because some modules work in the first interpreter of a process that imports them,
and in no second one. `visit` runs inside the interpreters. This module uses CPython's own module
for sub-interpreters, whose name changes between versions. The main interpreter of this process has
the same modules as that of a process of `headway serve`, and none of the application. This matters,
because modules with static types leave the types to the interpreter that imports them first.
"""

from __future__ import annotations

import sys
from importlib import import_module

from headway.audit import visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.audit.event_pipe import EventPipe
    from headway.audit.task import Interpreters

HAS_OWN_GIL = sys.version_info >= (3, 12)
# The sub-interpreter has this process's sys.path, so it finds this package.
PROGRAM = """
import sys
sys.path[:] = {path!r}
sys.argv[:] = ["headway"]
from headway.audit import visit
visit.run({fd!r}, {timeout_s!r}, {phase!r}, {names!r}, {application!r})
"""


def run(events: EventPipe, task: Interpreters) -> None:
    names, application = task["names"], task["application"]
    if task["gil"] == "main":
        visit.run(events.fd, events.timeout_s, "first", names, application)
        return
    import_module("headway.server.worker.start")
    facts = {"path": sys.path, "fd": events.fd, "timeout_s": events.timeout_s}
    facts.update(names=names, application=application)
    interpreters = []
    for phase in ("first", "second"):
        try:
            interpreters.append(_create(task["gil"]))
        except Exception as error:
            failure: str | None = f"{type(error).__name__}: {error}"
        else:
            failure = _run(interpreters[-1], PROGRAM.format(phase=phase, **facts))
        if failure is not None:
            events.send("no-interpreter", phase=phase, error=failure)
            return
    for interpreter in interpreters:
        events.send("ending")
        try:
            _module().destroy(interpreter)
        except Exception as error:
            events.send("not-ended", error=f"{type(error).__name__}: {error}")
            return


def _module() -> Any:
    return import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")


def _create(gil: str) -> Any:
    if sys.version_info >= (3, 13):
        return _module().create("isolated" if gil == "own" else "legacy")
    return _module().create(isolated=gil == "own")


def _run(interpreter: Any, program: str) -> str | None:
    """Runs the program; returns the exception that it raised, which it should not."""
    try:
        run = _module().exec if sys.version_info >= (3, 13) else _module().run_string
        failure = run(interpreter, program)
    except Exception as error:
        return str(error)
    return None if failure is None else str(failure.formatted)
