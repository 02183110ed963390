"""Programs that another one starts: controlled by lines of text, always ended.

A program prints a line of JSON when it is ready, receives a line with the window of time to
measure, and answers with a line of JSON. This module does not know what is measured.

No program outlives the one that started it. It is ended by its own pid at the end. If this process
is killed, the kernel signals the program. If the program cannot handle a signal, for example
because its threads starve each other, the kernel's alarm ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, NamedTuple, NoReturn

from headway.errors import CommandError, reason_of
from headway.programs import signals
from headway.programs.process_tree import Descendants
from headway.report import columns
from headway.temporary import temporary_file

# Longer than any window of an experiment with its warm-up.
LIFETIME_S = 600
# The time between the choice of a window and the moment at which all processes know it.
NOTICE_S = 0.05
ANSWER_TIMEOUT_S = 60.0
PATIENCE_S = 2.0
# The columns of a program's last message that are shown.
MAX_MESSAGE = 300
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
NS = 1e9
libc = ctypes.CDLL(None)


class ProgramError(CommandError):
    """A program cannot run, has ended, or says what cannot be used. The text is one line."""


class Window(NamedTuple):
    """The time to measure, on the monotonic clock, which all processes share."""

    begin_ns: int
    end_ns: int

    @classmethod
    def after(cls, warm_up_s: float, seconds: float) -> Window:
        begin_ns = time.monotonic_ns() + round((NOTICE_S + warm_up_s) * NS)
        return cls(begin_ns, begin_ns + round(seconds * NS))


class ChildProgram:
    """A running child process that is controlled by lines of text."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], messages: IO[bytes]) -> None:
        self.name = name
        self.process = process
        self._messages = messages
        self._received = b""
        self._busy_until_ns = 0

    def answer(self) -> dict[str, Any]:
        """The next line that the program prints. Raises ProgramError if there is none in time, or
        if it is not an answer."""
        while b"\n" not in self._received:
            self._receive()
        line, _, self._received = self._received.partition(b"\n")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            said = columns.name(line.decode(errors="replace"), MAX_MESSAGE)
            raise ProgramError(f'{self.name} said "{said}", which is no answer') from None
        return answer

    def measure(self, window: Window) -> None:
        """Sends the window to the program. Its answer comes after the window's end."""
        self._busy_until_ns = window.end_ns
        self.ask(f"{window.begin_ns} {window.end_ns}")

    def ask(self, line: str) -> None:
        """Writes a line to the program."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            self._fail("ended")

    def _receive(self) -> None:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        busy_s = max(0, self._busy_until_ns - time.monotonic_ns()) / NS
        if not select.select([descriptor], [], [], busy_s + ANSWER_TIMEOUT_S)[0]:
            self._fail("does not answer")
        data = os.read(descriptor, 1 << 20)
        if not data:
            self._fail("ended")
        self._received += data

    def messages(self) -> str:
        """The text on stderr so far. The child's position in the file does not change."""
        descriptor = self._messages.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def last_message(self) -> str:
        """The last message on stderr, fit for a terminal."""
        lines = self.messages().strip().splitlines()
        return columns.name(lines[-1], MAX_MESSAGE) if lines else "nothing"

    def _fail(self, what: str) -> NoReturn:
        raise ProgramError(f"{self.name} {what}; the last that it said: {self.last_message()}")


def prepare_child(lifetime_s: int = LIFETIME_S) -> None:
    """Runs in the child before exec, which keeps all three: a process group, to be killed as one (a
    session would change how the kernel schedules it); SIGTERM at the parent's death; and an alarm,
    whose default action kills, unless `lifetime_s` is 0."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(lifetime_s)


@contextmanager
def started(
    command: Sequence[str],
    name: str,
    *,
    pass_fds: Sequence[int] = (),
    speaks: bool = True,
    environment: Mapping[str, str] | None = None,
    lifetime_s: int = LIFETIME_S,
) -> Iterator[ChildProgram]:
    """A child process, from its start to its end, in a process group of its own. A program that is
    not controlled by lines, such as a server, ends at SIGTERM. `environment` is added to this
    process's; `lifetime_s` is for `prepare_child`."""
    with temporary_file() as messages:
        # Apache does not run as root here, and opens its stderr again.
        os.fchmod(messages.fileno(), 0o666)
        process: subprocess.Popen[bytes] | None = None
        try:
            # An exception that a signal raises during the fork would be lost, or raised in the
            # child.
            with signals.held():
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if speaks else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if speaks else messages,
                    stderr=messages,
                    pass_fds=pass_fds,
                    env={**os.environ, **(environment or {})},
                    preexec_fn=partial(prepare_child, lifetime_s),
                )
        except OSError as error:
            raise ProgramError(f"{name} cannot be started: {reason_of(error)}") from error
        except BaseException:
            if process is not None:
                end(process)
            raise
        try:
            yield ChildProgram(name, process, messages)
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program: closes its stdin, then sends SIGTERM, then kills it with its descendants in
    any process group. Another Ctrl-C waits until this is done."""
    with signals.held():
        descendants = Descendants(process.pid)
        pipes = [pipe for pipe in (process.stdin, process.stdout) if pipe is not None]
        for pipe in pipes:
            with suppress(BrokenPipeError):
                pipe.close()
        for stop in (None, process.terminate) if pipes else (process.terminate,):
            if stop is not None:
                stop()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
                break
        # The group has the process's id, which no other process gets while the group exists.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        descendants.kill()
