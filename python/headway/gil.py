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

from headway.meter import engine
from headway.meter.engine import NotInstalled
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
    engine.install(policy, kernel_hints=kernel_hints, ledger=ledger)


def policies() -> dict[str, str]:
    """The policies that `install()` takes, each with what it is for.

    Raises `Unsupported` where the extension module cannot be imported.
    """
    return engine.policies()


def uninstall() -> None:
    """Stop measuring, and leave scheduling to CPython. The books close, and `snapshot()` goes on
    returning them."""
    engine.uninstall()


def is_installed() -> bool:
    """Whether the meter is measuring this process."""
    return engine.is_installed()


def snapshot() -> Snapshot:
    """The books of this process, and of those forked from it, at this moment.

    Raises `NotInstalled` if they were never opened.
    """
    return Snapshot(engine.read_counters())


def read_ledger(path: str) -> Snapshot:
    """The books that a process left in a ledger file, however it ended.

    Raises `Error` if the file is not a ledger of this version.
    """
    return Snapshot(engine.read_ledger(path))
