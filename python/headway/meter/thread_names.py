"""Passes the names of Python's threads to the meter. Does not depend on what is measured.

A wrapper around the last step of `threading.Thread`'s start-up passes the name of each thread that
starts, and one around the setter of its name that of each thread that is renamed: a process that is
killed passes no name at its end. This module does not import `threading` into a program that has
not done so: `threading` takes the first thread that imports it for the main thread.
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

# `threading.Thread`, and what it had and has: the step of the start-up, and the name. None if
# neither is wrapped.
_wrapped: tuple[Any, ...] | None = None


def follow(tell: Tell) -> None:
    """Passes the names of the running threads, and from now on of each thread that starts."""
    tell_running(tell)
    threading = sys.modules.get("threading")
    if threading is not None and hasattr(threading, "Thread"):
        follow_starts(threading, tell)
    elif not any(isinstance(finder, _ThreadingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ThreadingFinder(tell))


def tell_running(tell: Tell) -> None:
    """Passes the names of the running threads, which may be older than the meter or renamed."""
    threading = sys.modules.get("threading")
    active = getattr(threading, "_active", None)
    if active is None:
        # The kernel's id of the main thread is the process's id.
        tell(os.getpid(), b"MainThread")
        return
    # Does not take threading's lock, which may be locked in a forked child or a signal handler.
    for thread in list(active.values()):
        _tell_one(thread, tell)


def _tell_one(thread: Any, tell: Tell) -> None:
    # A subclass may define `name` in any way; its thread must start nevertheless.
    try:
        if thread.native_id is not None:
            tell(thread.native_id, thread.name.replace("\0", "").encode("utf-8", "replace"))
    except Exception:
        pass


def follow_starts(threading: ModuleType, tell: Tell) -> None:
    """Passes the names of threads that start or are renamed from now on. `threading` must be
    imported."""
    global _wrapped
    if _wrapped is not None and _wrapped[0] is threading.Thread:
        return
    original, name = threading.Thread._set_native_id, threading.Thread.name

    def _set_native_id(self: Any) -> None:
        original(self)
        _tell_one(self, tell)

    def _set_name(self: Any, value: Any) -> None:
        name.fset(self, value)
        # The kernel may have given another thread the id of one that ended.
        if self.is_alive():
            _tell_one(self, tell)

    threading.Thread._set_native_id = _set_native_id
    threading.Thread.name = name.setter(_set_name)
    _wrapped = threading.Thread, original, _set_native_id, name, threading.Thread.name


def unfollow() -> None:
    """Passes no more names. `threading` is as it was, but for what somebody else has wrapped
    since."""
    global _wrapped
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _ThreadingFinder)]
    if _wrapped is None:
        return
    thread, original, set_native_id, name, our_name = _wrapped
    if thread._set_native_id is set_native_id:
        thread._set_native_id = original
    if thread.name is our_name:
        thread.name = name
    _wrapped = None


class _ThreadingFinder:
    """A finder in `sys.meta_path` that waits for the first import of `threading`, and then removes
    itself."""

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
            # The module keeps its own loader, because the program may inspect it.
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            load(module)
            follow_starts(module, tell)

        # A loader without `__dict__` is left alone: names are then passed at snapshots only.
        if hasattr(loader, "__dict__"):
            loader.exec_module = exec_module
