"""The pipe on which a child process of an audit sends its events to the audit, as lines of JSON.

An event is sent before a step begins, so that the audit knows in which step the child crashed or
hung. The application runs in the same process, so this module imports no extension module.
"""

from __future__ import annotations

import os
import signal

from headway.json_file import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# If the audit does not end a child, the child outlives the audit's timeout by this time.
GRACE_S = 10


class EventPipe:
    """The writing end. A sub-interpreter makes its own from the descriptor and the timeout."""

    def __init__(self, fd: int, timeout_s: float) -> None:
        self.fd = fd
        self.timeout_s = timeout_s

    def send(self, event: str, **facts: Any) -> None:
        """Sends an event. SIGALRM ends the process if the next event is overdue."""
        signal.setitimer(signal.ITIMER_REAL, self.timeout_s + GRACE_S)
        data = (to_json({"event": event, **facts}) + "\n").encode("ascii")
        while data:
            data = data[os.write(self.fd, data) :]


def describe(error: BaseException) -> dict[str, str]:
    """The message of an exception, and the messages of its causes, the first cause last."""
    messages: list[str] = []
    each: BaseException | None = error
    while each is not None and len(messages) < 20:
        messages.append(f"{type(each).__name__}: {each}")
        each = each.__cause__ or each.__context__
    return {"error": messages[0], "causes": "\n".join(messages[1:])}
