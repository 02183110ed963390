"""What a process tells its supervisor of the GIL: whether it has one, and, where it has none, which
modules its interpreters import that do not declare that they can do without."""

from __future__ import annotations

import os
import socket

from headway.server.control import Control
from headway.server.free_threading import gil_enabled
from headway.server.worker.undeclared import Watch

# Of this interpreter: a template's go on in the workers that it forks.
_watch: Watch | None = None
_names: list[str] = []
_control: Control | None = None


def tell_of_gil(control: Control) -> None:
    """Tells the state of now, and from now on each module at its import. Called again, in a worker
    that was forked, for its own control socket."""
    global _control, _watch
    _control = control
    control.send({"event": "gil", "enabled": gil_enabled(), "undeclared": _names})

    def tell(name: str) -> None:
        _names.append(name)
        message = {"event": "gil", "enabled": gil_enabled(), "undeclared": [name]}
        control.send(message, wait=False)

    if _watch is not None:
        _watch.tell = tell
    elif not gil_enabled():
        _watch = Watch(tell)


def descriptor_for_others() -> int:
    """Of the control socket, for other interpreters of this process; -1 where nothing is told."""
    return -1 if _watch is None or _control is None else _control.fileno()


def tell_of_gil_by(descriptor: int) -> None:
    """The same in an interpreter that got the descriptor from `descriptor_for_others`."""
    tell_of_gil(Control(socket.socket(fileno=os.dup(descriptor))))
