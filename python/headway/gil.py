"""The GIL meter: exact waits, holds, drops and forced switches of every thread.

    from headway import gil
    gil.install()
    before = gil.snapshot()
    ...
    print(gil.snapshot() - before)
    gil.uninstall()

The meter observes and does not affect scheduling, unless `install()` is given a policy.
`snapshot()` may be called from any thread. docs/design/words.md defines the terms and figures.
`Snapshot.report()` returns the GIL report as objects, `Snapshot.to_dict()` as plain values
(schema 2).
"""

from __future__ import annotations

from headway.meter import engine
from headway.meter.engine import NotInstalled
from headway.meter.profiling import Profiling
from headway.meter.snapshot import Snapshot

__all__ = [
    "NotInstalled",
    "Profiling",
    "Snapshot",
    "install",
    "is_installed",
    "policies",
    "profile",
    "read_ledger",
    "snapshot",
    "uninstall",
]


MAX_LOOP_LIMIT_S = 1e9  # in nanoseconds it fits in 64 bits


def install(
    policy: str | None = None,
    *,
    kernel_hints: bool = True,
    ledger: str | int | None = None,
    loop_limit_s: float | None = None,
) -> None:
    """Start measuring under a policy, with all counters at zero. If the meter is installed already,
    only change the policy, while threads run; the counters continue.

    `policy` decides which thread gets the GIL next, and when. It is "interval", CPython's own
    scheduling, which is measured and not changed, or another of `policies()`; None keeps the
    current policy, initially "interval". `kernel_hints` allows a policy to ask the kernel to run
    I/O-bound threads sooner when they wake up (a shorter EEVDF slice, Linux 6.12 and later); it is
    set together with the policy. `ledger` is the path of a file for the counters, so that `headway
    report` can read them if the process crashes, or the descriptor of an empty file.
    `loop_limit_s` is the duration in seconds from which on an iteration of an event loop is late,
    0.02 at first; None keeps it. With a limit the stacks of late loops are read from the first one
    on, and otherwise from the second.

    Raises `ValueError` for an unknown policy or a limit that is not above 0. Raises `Unsupported`,
    with the reason, if the meter cannot work: outside Linux on x86-64 or aarch64, in a
    statically linked interpreter, from a sub-interpreter.
    """
    if loop_limit_s is not None and not 0 < loop_limit_s < MAX_LOOP_LIMIT_S:
        raise ValueError(f"loop_limit_s is {loop_limit_s!r}, and must be above 0")
    engine.install(policy, kernel_hints=kernel_hints, ledger=ledger)
    if loop_limit_s is not None:
        engine.set_loop_limit(loop_limit_s)


def policies() -> dict[str, str]:
    """Return the policies that `install()` accepts, each with a description.

    Raises `Unsupported` if the extension module cannot be imported.
    """
    return engine.policies()


def uninstall() -> None:
    """Stop measuring, and leave scheduling to CPython. The counters stop, and `snapshot()`
    continues to return them."""
    engine.uninstall()


def is_installed() -> bool:
    """Return whether the meter is measuring this process."""
    return engine.is_installed()


def snapshot() -> Snapshot:
    """Return the current counters of this process and of the processes forked from it.

    Raises `NotInstalled` if the meter was never installed.
    """
    return Snapshot(engine.read_counters())


def profile() -> Profiling:
    """Return a contention profile, which has not started: which code holds a GIL while threads wait
    for it, and which code waits.

        with gil.profile() as profile:
            ...
        profile.write("waits.svg")
    """
    return Profiling()


def read_ledger(path: str) -> Snapshot:
    """Return the counters that a process left in a ledger file, however the process ended.

    Raises `Error` if the file is not a ledger of this version.
    """
    return Snapshot(engine.read_ledger(path))
