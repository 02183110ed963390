"""What runs inside an interpreter that is tried out: it imports modules, or the application, and
tells how that went. Imports as little as it can, since this is the interpreter in question."""

from __future__ import annotations

import sys

from headway.audit.child import Teller, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run(
    fd: int, timeout_s: float, phase: str, names: Sequence[str], application: str | None
) -> None:
    """Tells `importing` before each, and `imported` or `failed` after it."""
    teller = Teller(fd, timeout_s)
    for name in names:
        teller.tell("importing", module=name, phase=phase)
        try:
            __import__(name)
        except BaseException as error:
            teller.tell("failed", module=name, phase=phase, **describe(error))
        else:
            teller.tell("imported", module=name, phase=phase)
    if application is not None:
        _load(application, phase, teller)


def _load(application: str, phase: str, teller: Teller) -> None:
    from headway.audit.inventory import extension_modules
    from headway.server.application import ImportFailed, load_application

    teller.tell("importing", module=None, phase=phase)
    try:
        load_application(application)
    except ImportFailed as error:
        # What the application raised says more than that it did.
        cause = error.__context__ or error
        teller.tell("failed", module=None, phase=phase, **describe(cause))
    except BaseException as error:
        teller.tell("failed", module=None, phase=phase, **describe(error))
    else:
        present = [name for name, _ in extension_modules()]
        teller.tell("imported", module=None, phase=phase, present=present)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
