"""Imports modules in a child of a free-threaded build that was started without an option about the
GIL, and reports which import switches the GIL on. CPython never switches it off again, so the child
ends with that import."""

from __future__ import annotations

import sys
import warnings

from headway.audit.event_pipe import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.audit.event_pipe import EventPipe
    from headway.audit.task import FreeThreading


def run(events: EventPipe, task: FreeThreading) -> None:
    """Sends `importing` before each import, and `imported`, `gil-on` or `failed` after it.

    `gil-on` without a module means that the GIL was on from the start.
    """
    if sys._is_gil_enabled():  # type: ignore[attr-defined]
        events.send("gil-on", module=None, warning="")
        return
    for name in task["names"]:
        events.send("importing", module=name)
        # CPython's warning names the module that switched the GIL on. As an error it would stop the
        # import.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                __import__(name)
            except BaseException as error:
                events.send("failed", module=name, **describe(error))
                continue
        if sys._is_gil_enabled():  # type: ignore[attr-defined]
            messages = [str(each.message) for each in caught if "GIL" in str(each.message)]
            events.send("gil-on", module=name, warning=messages[0] if messages else "")
            return
        events.send("imported", module=name)
