"""What runs in a child process of an audit: one task, told on the command line, and what came of
each step, a line of JSON on a pipe of its own, so that nothing the application prints gets between.

A step is told before it is taken: who listens learns in which one the process crashed or hung. Code
of others runs in this process, so it imports no extension module before them, and no `json`.
"""

from __future__ import annotations

import ast
import os
import signal
import sys

from headway.json_file import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# How much longer than its listener would wait a child lives that nobody ends.
GRACE_S = 10


def main() -> None:
    """Ends the process."""
    fd, task = int(sys.argv[1]), ast.literal_eval(sys.argv[2])
    # Programs that the application starts have nothing to tell.
    os.set_inheritable(fd, False)
    sys.argv[:] = ["headway"]
    sys.path[:0] = task.get("python_path", ())
    if "path" in task:
        sys.path[:] = task["path"]
    teller = Teller(fd, task["timeout_s"])
    from headway.audit import free_threading, interpreters, inventory

    tasks: dict[str, Callable[[Teller, dict[str, Any]], None]] = {
        "inventory": inventory.run,
        "interpreters": interpreters.run,
        "free-threading": free_threading.run,
    }
    tasks[task["kind"]](teller, task)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Who hears this ends the process.
    teller.tell("done")
    # Threads and exit handlers of the application are not what was asked about.
    os._exit(0)


class Teller:
    """The writing end of the pipe. One that is handed to a sub-interpreter is made anew there."""

    def __init__(self, fd: int, timeout_s: float) -> None:
        self.fd = fd
        self.timeout_s = timeout_s

    def tell(self, event: str, **facts: Any) -> None:
        """Tells of an event. If the next takes far too long and nobody ends us, SIGALRM does."""
        signal.setitimer(signal.ITIMER_REAL, self.timeout_s + GRACE_S)
        data = (to_json({"event": event, **facts}) + "\n").encode("ascii")
        while data:
            data = data[os.write(self.fd, data) :]


def describe(error: BaseException) -> dict[str, str]:
    """An exception in words, and the messages of those that led to it, the first cause last."""
    messages: list[str] = []
    each: BaseException | None = error
    while each is not None and len(messages) < 20:
        messages.append(f"{type(each).__name__}: {each}")
        each = each.__cause__ or each.__context__
    return {"error": messages[0], "causes": "\n".join(messages[1:])}
