"""The GIL meter: exact waits, holds, drops and forced switches, of every thread.

    from headway import gil
    gil.install()
    before = gil.snapshot()
    ...
    print(gil.snapshot() - before)
    gil.uninstall()

The meter watches and changes nothing. `snapshot()` may be called from any thread. Words and
figures are defined in ARCHITECTURE.md; `Snapshot.to_dict()` is the GIL report, schema 1.
"""

from __future__ import annotations

import os
import sys

from headway import thread_names
from headway.errors import Error, Unsupported
from headway.snapshot import Snapshot

# `typing` is not loaded in every program that is measured, and this file is.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "NotInstalled",
    "Snapshot",
    "install",
    "is_installed",
    "read_ledger",
    "snapshot",
    "uninstall",
]

POLICIES = ("interval",)


class NotInstalled(Error):
    """There are no books to read: `install()` has not been called in this process."""


def install(policy: str = "interval", *, ledger: str | None = None, run: int | None = None) -> None:
    """Start measuring, with clean books; no effect if the meter is installed already.

    `policy` is "interval": CPython's own scheduling, watched and left alone.
    `ledger` is the path of a file to keep the books in, so that `headway report` can read them if
    the process crashes; with `run`, the file of another process's run, which this one joins.

    Raises `Unsupported`, saying why, where the meter cannot work: outside Linux with glibc on
    x86-64 or aarch64, in a statically linked interpreter, from a sub-interpreter.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy is {policy!r}; there is only {', '.join(map(repr, POLICIES))}")
    native = _native()
    try:
        native.gil_install(None if ledger is None else os.fsencode(ledger), run)
    except RuntimeError as refusal:
        raise Unsupported(f"the GIL meter cannot be installed: {refusal}") from None
    thread_names.follow(native.gil_name_thread)


def uninstall() -> None:
    """Stop measuring. The books close, and `snapshot()` goes on returning them."""
    native = _native()
    thread_names.tell_running(native.gil_name_thread)
    native.gil_uninstall()


def is_installed() -> bool:
    """Whether the meter is measuring this process."""
    try:
        return bool(_native().gil_installed())
    except Unsupported:
        return False


def snapshot() -> Snapshot:
    """The books of this process, and of those forked from it, at this moment.

    Raises `NotInstalled` if they were never opened.
    """
    native = _native()
    if native.gil_installed():
        thread_names.tell_running(native.gil_name_thread)
    raw = native.gil_snapshot()
    if raw is None:
        raise NotInstalled("no books to read: call headway.gil.install() first")
    raw["interpreters"] = native.gil_interpreters()
    return Snapshot(raw)


def read_ledger(path: str) -> Snapshot:
    """The books that a process left in a ledger file, however it ended.

    Raises `Error` if the file is not a ledger of this version.
    """
    try:
        return Snapshot(_native().gil_read_ledger(os.fsencode(path)))
    except RuntimeError as problem:
        raise Error(f"{path}: {problem}") from None


def _native() -> Any:
    try:
        from headway import _native
    except ImportError as problem:
        raise Unsupported(
            "the GIL meter cannot be installed: it needs Linux with glibc on x86-64 or aarch64, "
            "and headway's extension module, which could not be imported on "
            f"{sys.platform} ({problem})"
        ) from None
    return _native
