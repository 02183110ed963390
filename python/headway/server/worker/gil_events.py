"""Reports on the GIL from a process to its supervisor: whether the process has a GIL and, if it has
none, which imported modules do not declare that they can run without one."""

from __future__ import annotations

import os
import socket

from headway.server.control import Control
from headway.server.free_threading import gil_enabled
from headway.server.worker.undeclared import Watch

# The state of this interpreter. The workers that a template forks inherit its state.
_watch: Watch | None = None
_names: list[str] = []
_control: Control | None = None


def tell_of_gil(control: Control) -> None:
    """Reports the current state, and from then on each undeclared module at its import. A forked
    worker calls this again with its own control socket."""
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
    """The descriptor of the control socket, for the other interpreters of this process; -1 if
    imported modules are not reported."""
    return -1 if _watch is None or _control is None else _control.fileno()


def tell_of_gil_by(descriptor: int) -> None:
    """Calls `tell_of_gil` in an interpreter that has a descriptor from `descriptor_for_others`."""
    tell_of_gil(Control(socket.socket(fileno=os.dup(descriptor))))
