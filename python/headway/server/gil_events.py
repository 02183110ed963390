"""What a process tells its supervisor of the GIL: whether it has one, and, where it has none, which
modules it imports that do not declare that they can do without."""

from __future__ import annotations

from headway.server.control import Control
from headway.server.free_threading import gil_enabled
from headway.server.undeclared import Watch

# Of this process: a template's go on in the workers that it forks.
_watch: Watch | None = None
_names: list[str] = []


def tell_of_gil(control: Control) -> None:
    """Tells the state of now, and from now on each module at its import. Called again, in a worker
    that was forked, for its own control socket."""
    global _watch
    control.send({"event": "gil", "enabled": gil_enabled(), "undeclared": _names})

    def tell(name: str) -> None:
        _names.append(name)
        message = {"event": "gil", "enabled": gil_enabled(), "undeclared": [name]}
        control.send(message, wait=False)

    if _watch is not None:
        _watch.tell = tell
    elif not gil_enabled():
        _watch = Watch(tell)
