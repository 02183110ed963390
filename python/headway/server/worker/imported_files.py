"""What a process tells its supervisor of the files that its interpreters import (`--reload`): each
before its code runs, so that one with a mistake in it is known as well."""

from __future__ import annotations

import contextlib
import os
import socket
import sysconfig
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from typing import Any

from headway.server.control import Control
from headway.server.file_state import state_of

# Of this interpreter: a template's go on in the workers that it forks.
_control: Control | None = None
_told: set[str] = set()


def tell_of_files(control: Control) -> None:
    """From now on. Called again, in a worker that was forked, for its own control socket."""
    global _control
    is_first, _control = _control is None, control
    if is_first:
        # Both are called ahead of what may raise, and so leave nothing in its traceback.
        _tell_before(SourceFileLoader, "get_filename")
        _tell_before(ExtensionFileLoader, "create_module")


def descriptor_for_others() -> int:
    """Of the control socket, for other interpreters of this process; -1 where nothing is told."""
    return -1 if _control is None else _control.fileno()


def tell_of_files_by(descriptor: int) -> None:
    """The same in an interpreter that got the descriptor from `descriptor_for_others`."""
    tell_of_files(Control(socket.socket(fileno=os.dup(descriptor))))


def _tell_before(loader_class: Any, name: str) -> None:
    installed = _folders_of_what_is_installed()
    former: Callable[..., Any] = getattr(loader_class, name)

    def method(loader: Any, *arguments: Any) -> Any:
        # No import fails for what can be told of it.
        with contextlib.suppress(Exception):
            path = os.path.abspath(loader.path)
            if path not in _told and not path.startswith(installed):
                _told.add(path)
                assert _control is not None
                _control.send({"event": "files", "states": {path: state_of(path)}})
        return former(loader, *arguments)

    setattr(loader_class, name, method)


def _folders_of_what_is_installed() -> tuple[str, ...]:
    """The standard library's and packages', whose files nobody edits in place."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.join(sysconfig.get_path(name), "") for name in names})
