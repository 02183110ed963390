"""Starts a child on one task, reads its events, and reports how it ended: by itself, by a signal,
or because it made no progress. Does not know the tasks. Runs on the command's only thread."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from headway import _native
from headway.errors import CommandError
from headway.temporary import temporary_file

Event = dict[str, Any]
PROGRAM = "from headway.audit.child import main; main()"
MAX_LAST_WORDS = 200


class Ending(NamedTuple):
    """How a child ended. `complete` means that it finished its task."""

    complete: bool
    reason: str


class Trial(NamedTuple):
    """The events of a child, in order, and its end."""

    events: list[Event]
    ending: Ending

    def of(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]


def run_trial(
    task: Mapping[str, object],
    timeout_s: float,
    heard: Callable[[Event], None] = lambda event: None,
    *,
    shows_output: bool = False,
) -> Trial:
    """Runs a child to its end; `heard` gets each event at once.

    The output of the application goes to our stderr, or is kept for the last line before a crash.
    The child leads a session of its own, so Ctrl-C does not reach it. All processes of the session
    end with the child.
    """
    read_fd, write_fd = os.pipe()
    with temporary_file() as output, os.fdopen(read_fd, "rb", buffering=0) as pipe:
        sink: Any = sys.__stderr__ if shows_output else output
        try:
            child = subprocess.Popen(
                [
                    *(sys.executable, *_flags(), "-c", PROGRAM),
                    *(str(write_fd), repr({**task, "timeout_s": timeout_s})),
                ],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=_environment(),
                pass_fds=(write_fd,),
                start_new_session=True,
                preexec_fn=partial(_end_with_parent, os.getpid()),
            )
        except OSError as error:
            raise CommandError(f"cannot start {sys.executable}: {error.strerror}") from None
        finally:
            os.close(write_fd)
        try:
            events, in_time = _listen(child.pid, pipe.fileno(), timeout_s, heard)
        finally:
            # The child is killed before it is reaped, while no other process can have its number.
            # If it has died, its status is set already.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").split("\n")
    complete = bool(events) and events[-1]["event"] == "done"
    if complete:
        reason = ""
    elif not in_time:
        reason = f"it hangs: no answer for {timeout_s:g} s"
    else:
        last_words = next((line.strip() for line in reversed(lines) if line.strip()), "")
        reason = _death(status) + (f" ({last_words[:MAX_LAST_WORDS]})" if last_words else "")
    return Trial([event for event in events if event["event"] != "done"], Ending(complete, reason))


def _end_with_parent(parent: int) -> None:
    """In the child: nobody else ends one whose audit is killed, now or before."""
    _native.process_end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _listen(
    pid: int, fd: int, timeout_s: float, heard: Callable[[Event], None]
) -> tuple[list[Event], bool]:
    """The events until the task is done or the child is dead, and whether each of them came in
    time."""
    events: list[Event] = []
    rest = b""
    # The pipe does not suffice: a process that the application forked may hold its other end.
    pidfd = os.pidfd_open(pid)
    try:
        until = time.monotonic() + timeout_s
        while True:
            wait_s = max(until - time.monotonic(), 0)
            ready, _, _ = select.select([fd, pidfd], [], [], wait_s)
            if not ready:
                return events, False
            data = os.read(fd, 65_536) if fd in ready else b""
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                events.append(_event(line))
                heard(events[-1])
                until = time.monotonic() + timeout_s
            is_done = bool(events) and events[-1]["event"] == "done"
            if is_done or (not data and pidfd in ready):
                return events, True
            if not data:
                # The child has closed its end of the pipe and lives on. The only event left is its
                # death.
                select.select([pidfd], [], [], max(until - time.monotonic(), 0))
                return events, time.monotonic() < until
    finally:
        os.close(pidfd)


def _event(line: bytes) -> Event:
    """Raises `CommandError` for a line that the application wrote: it can write to any descriptor
    of its process."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise CommandError(
            f"the pipe of events: found {line[:40]!r}; the application wrote to a descriptor of "
            "its process that is the audit's"
        )
    return event


def _death(status: int) -> str:
    if status >= 0:
        return f"it ends the process with exit status {status}"
    try:
        return f"it crashes with {signal.Signals(-status).name}"
    except ValueError:
        return f"it crashes with signal {-status}"


def _flags() -> list[str]:
    """The options of this interpreter without -X gil: an extension module switches the GIL on only
    if no option says whether it is on."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    kept: list[str] = []
    for flag in flags:
        if flag.startswith("gil=") and kept[-1:] == ["-X"]:
            kept.pop()
        elif not flag.startswith("-Xgil"):
            kept.append(flag)
    return kept


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
