"""A server of its own for an experiment: `headway serve` with a status socket."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from headway.errors import CommandError
from headway.programs.processes import MAX_MESSAGE, ChildProgram, started
from headway.report import columns
from headway.temporary import temporary_folder

START_TIMEOUT_S = 60.0
POLL_S = 0.02
SEE_ABOVE = " (see above)"
LISTENING = re.compile(r"listening on https?://127\.0\.0\.1:(\d+)")


class Served(NamedTuple):
    """The status socket as `unix:PATH`, the port on 127.0.0.1, and the id of the supervisor."""

    address: str
    port: int
    pid: int


@contextmanager
def serving(words: Sequence[str]) -> Iterator[Served]:
    """`words` are the application and options of `headway serve`. Raises CommandError (exit code 2)
    if the server does not start."""
    with temporary_folder("tune") as folder:
        address = f"unix:{Path(folder) / 'status'}"
        command = [sys.executable, "-m", "headway", "serve", *words, "--bind", "127.0.0.1:0"]
        command += ["--status-socket", address.removeprefix("unix:")]
        with started(command, "the server", speaks=False, lifetime_s=0) as program:
            yield Served(address, _port(program), program.process.pid)


def _port(program: ChildProgram) -> int:
    end_s = time.monotonic() + START_TIMEOUT_S
    while (found := LISTENING.search(program.messages())) is None:
        if program.process.poll() is not None or time.monotonic() > end_s:
            raise CommandError(f"the server does not start: {_reason(program)}", exit_code=2)
        time.sleep(POLL_S)
    return int(found[1])


def _reason(program: ChildProgram) -> str:
    """The last message of a server. Where it refers to an exception, which is printed before it,
    also the last line of that."""
    reason = program.last_message().removeprefix("headway serve: ")
    if not reason.endswith(SEE_ABOVE):
        return reason
    *_, exception, _ = program.messages().strip().splitlines()
    return f"{reason.removesuffix(SEE_ABOVE)}: {columns.name(exception, MAX_MESSAGE)}"
