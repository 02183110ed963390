"""Reports from a process to its supervisor on the files that its interpreters import (`--reload`).
Each file is reported before its code runs, so that a file whose code fails is reported too."""

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

# The state of this interpreter. The workers that a template forks inherit its state.
_control: Control | None = None
_told: set[str] = set()


def tell_of_files(control: Control) -> None:
    """Reports each file that is imported from then on. A forked worker calls this again with its
    own control socket."""
    global _control
    is_first, _control = _control is None, control
    if is_first:
        # The import system calls both methods before the code that may raise, so the wrappers
        # leave no frame in its traceback.
        _tell_before(SourceFileLoader, "get_filename")
        _tell_before(ExtensionFileLoader, "create_module")


def descriptor_for_others() -> int:
    """The descriptor of the control socket, for the other interpreters of this process; -1 if
    imported files are not reported."""
    return -1 if _control is None else _control.fileno()


def tell_of_files_by(descriptor: int) -> None:
    """Calls `tell_of_files` in an interpreter with a descriptor of `descriptor_for_others`."""
    tell_of_files(Control(socket.socket(fileno=os.dup(descriptor))))


def _tell_before(loader_class: Any, name: str) -> None:
    installed = _folders_of_what_is_installed()
    former: Callable[..., Any] = getattr(loader_class, name)

    def method(loader: Any, *arguments: Any) -> Any:
        # A failed report does not make the import fail.
        with contextlib.suppress(Exception):
            path = os.path.abspath(loader.path)
            if path not in _told and not path.startswith(installed):
                _told.add(path)
                assert _control is not None
                _control.send({"event": "files", "states": {path: state_of(path)}})
        return former(loader, *arguments)

    setattr(loader_class, name, method)


def _folders_of_what_is_installed() -> tuple[str, ...]:
    """The directories of the standard library and of installed packages. Nobody edits these files
    in place."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.join(sysconfig.get_path(name), "") for name in names})
