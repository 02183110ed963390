"""Tells the ledger the names of Python's threads. Knows nothing of what is measured.

A thread's name is told when the thread starts, by a wrapper around the last step of
`threading.Thread`'s start-up. A program that has not imported `threading` yet is not made to: the
module remembers which thread imported it first, and takes that for the main one.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    # The native thread id and the name, in UTF-8 without NUL.
    Tell = Callable[[int, bytes], None]


def follow(tell: Tell) -> None:
    """Tell names from now on: of the threads that run, and of each that starts."""
    tell_running(tell)
    threading = sys.modules.get("threading")
    if threading is not None and hasattr(threading, "Thread"):
        follow_starts(threading, tell)
    elif not any(isinstance(finder, _ThreadingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ThreadingFinder(tell))


def tell_running(tell: Tell) -> None:
    """Tell the names of the threads that run: some are older than the meter, some were renamed."""
    threading = sys.modules.get("threading")
    active = getattr(threading, "_active", None)
    if active is None:
        # The kernel knows the main thread by the process's id.
        tell(os.getpid(), b"MainThread")
        return
    # Without threading's lock, which a fork or a signal handler may find locked.
    for thread in list(active.values()):
        _tell_one(thread, tell)


def _tell_one(thread: Any, tell: Tell) -> None:
    # A subclass may have made anything of `name`; its thread has to start all the same.
    try:
        if thread.native_id is not None:
            tell(thread.native_id, thread.name.replace("\0", "").encode("utf-8", "replace"))
    except Exception:
        pass


def follow_starts(threading: ModuleType, tell: Tell) -> None:
    """Tell the names of threads that start from now on, where `threading` is there."""
    original = threading.Thread._set_native_id
    if hasattr(original, "__wrapped__"):
        return

    def _set_native_id(self: Any) -> None:
        original(self)
        _tell_one(self, tell)

    _set_native_id.__wrapped__ = original  # type: ignore[attr-defined]
    threading.Thread._set_native_id = _set_native_id


class _ThreadingFinder:
    """Waits in `sys.meta_path` for the first import of `threading`, and is gone with it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "threading":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self._follow_once_loaded(spec.loader)
                return spec
        return None

    def _follow_once_loaded(self, loader: Any) -> None:
        load = loader.exec_module
        tell = self._tell

        def exec_module(module: ModuleType) -> None:
            # The loader stays the module's own, as the program may look at it.
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            load(module)
            follow_starts(module, tell)

        # A loader without room for attributes is left alone: names come at snapshots only.
        if hasattr(loader, "__dict__"):
            loader.exec_module = exec_module
