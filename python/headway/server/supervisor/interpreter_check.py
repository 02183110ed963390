"""Asks the Pythons of `python-home`, before a generation starts, whether they run, which version of
Headway they have, and whether they can run without a GIL.

Each Python is asked by a child, all of them side by side. The supervisor's loop waits for the
children as for anything else, and a check can be cancelled. Only the supervisor's main thread uses
this module; it does not block here, but for the state of each Python's file.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator

from headway.errors import CommandError
from headway.server import free_threading
from headway.server.settings import ProcessGroup
from headway.server.signals import IGNORED, SUPERVISORS_SIGNALS
from headway.server.supervisor.children import Children
from headway.server.system import System

TIMEOUT_S = 30
# An answer has two short lines.
MAX_ANSWER_BYTES = 4096


class InterpreterProbe:
    """A child that runs `free_threading.PROGRAM`. Its answer is whole when it has closed the pipe;
    how it ends does not matter."""

    def __init__(self, python_home: str, children: Children, system: System) -> None:
        self._children = children
        self._system = system
        self._answer = b""
        self._pid = 0
        # -1 when the pipe is closed.
        self.fd = -1
        # The end of the child's process group, if this process is killed before it has answered.
        self._life_fd = -1
        self.deadline = system.monotonic() + TIMEOUT_S
        # Why the Python cannot be asked, or "".
        self.problem = ""
        self._command = [free_threading.interpreter(python_home), *free_threading.QUESTION]
        self._start()

    def _start(self) -> None:
        python = self._command[0]
        self.fd, write_fd = os.pipe()
        self._life_fd, tie_fd = os.pipe()
        os.set_blocking(self.fd, False)
        try:
            self._pid = self._system.posix_spawn(
                python,
                self._command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, write_fd, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, tie_fd, 3),
                ],
                # It may be a wrapper that starts the Python as its child.
                setpgroup=0,
                setsigmask=SUPERVISORS_SIGNALS,
                setsigdef=IGNORED,
            )
        except OSError as error:
            self.problem = str(error)
            self._close()
        else:
            self._children.others.add(self._pid)
            self._system.kill_group_with_reader(tie_fd, self._pid)
        finally:
            os.close(write_fd)
            os.close(tie_fd)

    def hear(self) -> None:
        """Reads what has come."""
        try:
            data = os.read(self.fd, MAX_ANSWER_BYTES)
        except BlockingIOError:
            return
        self._answer += data
        if not data:
            self._close()
        elif len(self._answer) > MAX_ANSWER_BYTES:
            self.cancel()

    def tend(self, now: float) -> None:
        """Kills the child if it is late."""
        if self.fd >= 0 and now >= self.deadline:
            self.problem = str(subprocess.TimeoutExpired(self._command, TIMEOUT_S))
            self.cancel()

    def cancel(self) -> None:
        """Kills the child, which the loop reaps, unless it has answered."""
        if self.fd >= 0:
            self._close()
            self._children.kill_other(self._pid)

    def answer(self) -> free_threading.Answer:
        return free_threading.read_answer(self._answer.decode(errors="replace"))

    def _close(self) -> None:
        os.close(self.fd)
        os.close(self._life_fd)
        self.fd = -1


class InterpreterCheck:
    """The probes of one reading of the configuration, by their python-home."""

    def __init__(self, children: Children, system: System) -> None:
        self._children = children
        self._system = system
        self._probes: dict[str, InterpreterProbe] = {}

    def ask(self, homes: Iterable[str | None]) -> bool:
        """Starts the probes that this reading has not asked yet; false if there are none."""
        new = [
            home for home in dict.fromkeys(homes) if home is not None and home not in self._probes
        ]
        for home in new:
            self._probes[home] = InterpreterProbe(home, self._children, self._system)
        return bool(new)

    def cancel(self) -> None:
        """Ends the reading: its children are killed, and its answers are forgotten."""
        for each in self._probes.values():
            each.cancel()
        self._probes.clear()

    def fds(self) -> Iterator[int]:
        return (each.fd for each in self._probes.values() if each.fd >= 0)

    def deadlines(self) -> Iterator[float]:
        return (each.deadline for each in self._probes.values() if each.fd >= 0)

    def hear(self, ready: Iterable[int]) -> None:
        for each in self._probes.values():
            if each.fd >= 0 and each.fd in ready:
                each.hear()

    def tend(self) -> None:
        for each in self._probes.values():
            each.tend(self._system.monotonic())

    def is_over(self) -> bool:
        return next(self.fds(), None) is None

    def note_builds(self) -> None:
        """Lets `free_threading` know the answers."""
        for home, each in self._probes.items():
            free_threading.note(home, each.answer().is_free_threaded)

    def refuse(self, groups: Iterable[ProcessGroup]) -> None:
        """Raises `CommandError` for the first group whose own Python does not run or does not have
        this version of Headway."""
        # Imported here because looking up the package metadata takes megabytes.
        from headway import __version__

        for group in groups:
            if group.python_home is None:
                continue
            python = free_threading.interpreter(group.python_home)
            place = f"process group {group.name!r}: python-home {group.python_home!r}"
            probe = self._probes[group.python_home]
            if probe.problem:
                raise CommandError(f"{place}: {python} does not run ({probe.problem})", exit_code=2)
            found = probe.answer().version
            if found != __version__:
                what = f"has headway {found}" if found else "has no headway"
                raise CommandError(
                    f"{place}: {python} {what}, and the same version must be there: "
                    f"in Headway's source tree run `{python} -m pip install .`",
                    exit_code=2,
                )
