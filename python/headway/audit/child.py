"""The child process of an audit: it carries out one task, which its command line gives, and sends
an event for each step. The application runs in this process, so nothing here imports an extension
module or `json` before the application does."""

from __future__ import annotations

import ast
import os
import sys

from headway.audit import free_threading, interpreters, inventory
from headway.audit.event_pipe import EventPipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.audit.task import Task


def run(events: EventPipe, task: Task) -> None:
    if task["kind"] == "inventory":
        inventory.run(events, task)
    elif task["kind"] == "interpreters":
        interpreters.run(events, task)
    else:
        free_threading.run(events, task)


def main() -> None:
    """Ends the process."""
    fd, task = int(sys.argv[1]), ast.literal_eval(sys.argv[2])
    # Programs that the application starts do not inherit the pipe.
    os.set_inheritable(fd, False)
    sys.argv[:] = ["headway"]
    sys.path[:0] = task.get("python_path", ())
    if "path" in task:
        sys.path[:] = task["path"]
    events = EventPipe(fd, task["timeout_s"])
    run(events, task)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # The audit ends the process when it reads this event.
    events.send("done")
    # The audit does not examine the application's threads and exit handlers.
    os._exit(0)
