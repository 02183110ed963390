"""Installs and removes the GIL engine of this process, and reads its raw counters.

A *raw* process is a dictionary with times in nanoseconds; `headway.meter.snapshot` makes a report
of it. `headway run` installs the engine before the first line of the user's program, so this module
imports no module of the report.
"""

from __future__ import annotations

import os
import sys

from headway.errors import Error, Unsupported
from headway.meter import forks, garbage_collection, late_lines, machine, thread_names

# Not every measured program has loaded `typing`, and this module must not load it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Raw = dict[str, Any]


# Whether the policy may give the kernel hints: as the last installation of one said.
_kernel_hints = True


class NotInstalled(Error):
    """There are no counters to read: `install()` has not been called in this process."""


def install(
    policy: str | None,
    *,
    kernel_hints: bool = True,
    ledger: str | int | None = None,
    run: int | None = None,
) -> None:
    """Implements `headway.gil.install`. With `run`, `ledger` is the file of another process's run,
    which this process joins."""
    global _kernel_hints
    native = _native()
    names = list(policies())
    if policy is not None and policy not in names:
        raise ValueError(f"policy is {policy!r}, and must be one of {', '.join(map(repr, names))}")
    try:
        place = os.fsencode(ledger) if isinstance(ledger, str) else ledger
        was_installed = native.gil_installed()
        native.gil_install(policy, kernel_hints, place, run)
    except RuntimeError as refusal:
        raise Unsupported(f"the GIL meter cannot be installed: {refusal}") from None
    if policy is not None:
        _kernel_hints = kernel_hints
    thread_names.follow(native.gil_name_thread)
    garbage_collection.follow(native.gil_note_collection)
    # A thread of Headway may start at any time: with the first late event loop.
    forks.follow()
    if not was_installed:
        machine.begin()


def set_loop_limit(limit_s: float) -> None:
    """Says from which duration on an iteration of an event loop is late, and reads the stacks of
    late ones from now on. The meter is installed."""
    _native().loops_late_from(round(limit_s * 1e9))
    read_loops()


def read_loops() -> None:
    """Reads the stacks of late event loops from now on, and not only from the first one. The meter
    is installed."""
    _native().loops_read()


def leave_loops() -> None:
    """The program runs no event loop now: the time until each waits for events again is no
    iteration. The meter is installed."""
    _native().loops_leave()


def change_policy(policy: str | None) -> None:
    """As `install`, with kernel hints as before: for who comes into a program of somebody else."""
    install(policy, kernel_hints=_kernel_hints)


def policies() -> dict[str, str]:
    """Implements `headway.gil.policies`."""
    return dict(_native().gil_policies())


def uninstall() -> None:
    """Implements `headway.gil.uninstall`."""
    native = _native()
    thread_names.tell_running(native.gil_name_thread)
    thread_names.unfollow()
    garbage_collection.unfollow(native.gil_note_collection)
    native.gil_uninstall()
    machine.end()


def is_installed() -> bool:
    """Whether the meter is measuring this process."""
    try:
        return bool(_native().gil_installed())
    except Unsupported:
        return False


def read_counters() -> Raw:
    """Returns the raw process. Raises `NotInstalled` if the meter was never installed."""
    native = _native()
    if native.gil_installed():
        thread_names.tell_running(native.gil_name_thread)
    raw: Raw | None = native.gil_snapshot()
    if raw is None:
        raise NotInstalled("no counters to read: call headway.gil.install() first")
    raw["machine"] = machine.since_begin()
    late_lines.distribute(raw)
    raw["interpreters"] = [id for id, has_own_gil in native.gil_interpreters() if not has_own_gil]
    return raw


def read_ledger(file: str | int) -> Raw:
    """Returns the raw process that a process left in a ledger file, however the process ended.
    `file` is the path of the file, or the descriptor at which it is open.

    Raises `Error` if the file is not a ledger of this version.
    """
    raw: Raw = _read_file(_native().gil_read_ledger, file)
    late_lines.distribute(raw)
    return raw


def _read_file(read: Callable[[int], Any], file: str | int) -> Any:
    """`read` of the open file. Raises `Error`."""
    try:
        if isinstance(file, int):
            return read(file)
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise Error(f"{file}: the ledger cannot be opened: {problem.strerror}") from None
    except RuntimeError as problem:
        raise Error(str(problem) if isinstance(file, int) else f"{file}: {problem}") from None


def begin_trace(events: int, ledger: str | None = None) -> None:
    """Begins to keep the latest `events` events. The number is rounded up to a power of two; an
    event takes 16 bytes. They are kept in memory, or in `ledger`, the file of the counters, where
    they can be read after a crash.

    Raises `Unsupported` if there is no room for them.
    """
    try:
        _native().gil_begin_trace(events, None if ledger is None else os.fsencode(ledger))
    except RuntimeError as refusal:
        place = "memory" if ledger is None else ledger
        raise Unsupported(f"{events} events cannot be kept in {place}: {refusal}") from None


def read_trace() -> Raw | None:
    """Ends the trace and returns its events, for `headway.trace.events`. Returns None if there is
    no trace, as in a forked child."""
    return _native().gil_read_trace()  # type: ignore[no-any-return]


def read_ledger_trace(file: str | int) -> Raw | None:
    """Returns the events that a ledger file has after the counters, or None if it has none.

    Raises `Error` as `read_ledger` does.
    """
    return _read_file(_native().gil_read_ledger_trace, file)  # type: ignore[no-any-return]


def begin_profile(ledger: str | None = None) -> None:
    """Begins to charge what threads wait to stacks. The tables are kept in memory, or in `ledger`,
    the file of the counters, where they can be read after a crash.

    Raises `Unsupported` if the frames of this interpreter cannot be read, or if there is no room.
    """
    native = _native()
    try:
        native.profile_begin(None if ledger is None else os.fsencode(ledger))
    except RuntimeError as refusal:
        raise Unsupported(f"no profile can be kept: {refusal}") from None
    forks.follow()


def report_profile() -> None:
    """Lets the reporter of this process read the profile, which begins if none is on. Does nothing
    where no profile can be kept."""
    if _native().profile_report():
        forks.follow()


def read_profile() -> Raw | None:
    """Returns what is charged to stacks, for `headway.profile.reading`. Returns None if there is
    no profile, as in a forked child."""
    thread_names.tell_running(_native().gil_name_thread)
    return _native().profile_read()  # type: ignore[no-any-return]


def end_profile() -> Raw | None:
    """Ends the profile and returns it as `read_profile` does."""
    thread_names.tell_running(_native().gil_name_thread)
    return _native().profile_end()  # type: ignore[no-any-return]


def read_ledger_profile(file: str | int) -> Raw | None:
    """Returns the profile that a ledger file has after the counters, or None if it has none.

    Raises `Error` as `read_ledger` does.
    """
    return _read_file(_native().profile_read_ledger, file)  # type: ignore[no-any-return]


def _native() -> Any:
    try:
        from headway import _native
    except ImportError as problem:
        raise Unsupported(
            "the GIL meter cannot be installed: it needs Linux on x86-64 or aarch64, "
            "and headway's extension module, which could not be imported on "
            f"{sys.platform} ({problem})"
        ) from None
    return _native
