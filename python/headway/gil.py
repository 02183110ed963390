"""The GIL meter: exact waits, holds, drops and forced switches, of every thread.

    from headway import gil
    gil.install()
    before = gil.snapshot()
    ...
    print(gil.snapshot() - before)
    gil.uninstall()

The meter watches and changes nothing, unless `install()` is given a policy. `snapshot()` may be
called from any thread. Words and figures are defined in ARCHITECTURE.md; `Snapshot.report()` is
the GIL report as objects, `Snapshot.to_dict()` as plain values (schema 2).
"""

from __future__ import annotations

import os
import sys

from headway.errors import Error, Unsupported
from headway.meter import thread_names

# `typing` is not loaded in every program that is measured, and this file is.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.meter.snapshot import Snapshot

__all__ = [
    "NotInstalled",
    "Snapshot",
    "install",
    "is_installed",
    "policies",
    "read_ledger",
    "snapshot",
    "uninstall",
]


class NotInstalled(Error):
    """There are no books to read: `install()` has not been called in this process."""


def install(
    policy: str | None = None, *, kernel_hints: bool = True, ledger: str | int | None = None
) -> None:
    """Start measuring, with clean books, under a policy. Where the meter is installed already, only
    change the policy, while threads run; the books go on.

    `policy` decides which thread gets the GIL next, and when: "interval", CPython's own scheduling,
    measured and left alone, or another of `policies()`; None keeps what is in force, at first
    "interval". `kernel_hints` allows a policy to ask the kernel to run I/O-bound threads sooner
    when they wake up (a shorter EEVDF slice, Linux 6.12 and later); it belongs to the policy.
    `ledger` is the path of a file to keep the books in, so that `headway report` can read them if
    the process crashes, or the descriptor of an empty file.

    Raises `ValueError` for an unknown policy, and `Unsupported`, with the reason, where the meter
    cannot work: outside Linux with glibc on x86-64 or aarch64, in a statically linked interpreter,
    from a sub-interpreter.
    """
    # Importing reads files, which drops the GIL. These drops belong neither to the books nor to
    # the time between the first snapshot and the second.
    import headway.meter.snapshot  # noqa: F401

    install_without_report(policy, kernel_hints=kernel_hints, ledger=ledger)


def install_without_report(
    policy: str | None,
    *,
    kernel_hints: bool = True,
    ledger: str | int | None = None,
    run: int | None = None,
) -> None:
    """As `install`, but the modules of the report stay unloaded until `snapshot()` needs them. With
    `run`, `ledger` is the file of another process's run, which this one joins."""
    native = _native()
    names = list(policies())
    if policy is not None and policy not in names:
        raise ValueError(f"policy is {policy!r}, and must be one of {', '.join(map(repr, names))}")
    try:
        place = os.fsencode(ledger) if isinstance(ledger, str) else ledger
        native.gil_install(policy, kernel_hints, place, run)
    except RuntimeError as refusal:
        raise Unsupported(f"the GIL meter cannot be installed: {refusal}") from None
    thread_names.follow(native.gil_name_thread)


def policies() -> dict[str, str]:
    """The policies that `install()` takes, each with what it is for.

    Raises `Unsupported` where the extension module cannot be imported.
    """
    return dict(_native().gil_policies())


def uninstall() -> None:
    """Stop measuring, and leave scheduling to CPython. The books close, and `snapshot()` goes on
    returning them."""
    native = _native()
    thread_names.tell_running(native.gil_name_thread)
    native.gil_uninstall()


def is_installed() -> bool:
    """Whether the meter is measuring this process."""
    try:
        return bool(_native().gil_installed())
    except Unsupported:
        return False


def __getattr__(name: str) -> Any:
    if name == "Snapshot":
        from headway.meter.snapshot import Snapshot

        return Snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def snapshot() -> Snapshot:
    """The books of this process, and of those forked from it, at this moment.

    Raises `NotInstalled` if they were never opened.
    """
    # Before the counters are read, as in `install`: under `headway run` nothing has loaded it yet.
    from headway.meter.snapshot import Snapshot

    return Snapshot(read_counters())


def read_counters() -> dict[str, Any]:
    """The raw process of a `Snapshot`, in nanoseconds, read without importing anything.

    Raises `NotInstalled` as `snapshot` does.
    """
    native = _native()
    if native.gil_installed():
        thread_names.tell_running(native.gil_name_thread)
    raw: dict[str, Any] | None = native.gil_snapshot()
    if raw is None:
        raise NotInstalled("no books to read: call headway.gil.install() first")
    raw["interpreters"] = native.gil_interpreters()
    return raw


def read_ledger(path: str) -> Snapshot:
    """The books that a process left in a ledger file, however it ended.

    Raises `Error` if the file is not a ledger of this version.
    """
    from headway.meter.snapshot import Snapshot

    try:
        return Snapshot(_native().gil_read_ledger(os.fsencode(path)))
    except RuntimeError as problem:
        raise Error(f"{path}: {problem}") from None


def begin_trace(events: int, ledger: str | None = None) -> None:
    """Keep the last so many events from now on, one by one. The number is rounded up to a power of
    two; an event takes 16 bytes. They are kept in memory, or in `ledger`, the file that the books
    are kept in, where they can be read after a crash.

    Raises `Unsupported` where there is no room for them.
    """
    try:
        _native().gil_begin_trace(events, None if ledger is None else os.fsencode(ledger))
    except RuntimeError as refusal:
        place = "memory" if ledger is None else ledger
        raise Unsupported(f"{events} events cannot be kept in {place}: {refusal}") from None


def read_trace() -> dict[str, Any] | None:
    """The events that were kept of this process, for `headway.trace.events`; none are kept from
    now on. None if there is no trace, as in a forked child."""
    return _native().gil_read_trace()  # type: ignore[no-any-return]


def read_ledger_trace(path: str) -> dict[str, Any] | None:
    """The events that lie behind the books in a ledger file. None if there are none.

    Raises `Error` if the file is not a ledger of this version.
    """
    try:
        return _native().gil_read_ledger_trace(os.fsencode(path))  # type: ignore[no-any-return]
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
