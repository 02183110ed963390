"""The child processes of all generations that the supervisor has not reaped yet, and the children
that ask a Python (`interpreter_check`).

A worker that a template forks becomes a child of the supervisor because the kernel reparents it to
the supervisor as a subreaper. The worker reports its pid when it runs, and may end before the
supervisor reads that message. This module does not know why a process starts or ends. Only the
supervisor's single thread uses it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from headway.server.supervisor.process import End, Process
from headway.server.system import System


class Children:
    def __init__(self, system: System) -> None:
        self._system = system
        self._processes: list[Process] = []
        # The wait statuses, by pid, of children that no process in the list has claimed yet.
        self._unclaimed: dict[int, int] = {}
        # Children that are no process of a group and have not been reaped. Each has a process group
        # of its own, with what it starts.
        self.others: set[int] = set()

    def __iter__(self) -> Iterator[Process]:
        """Iterates over a snapshot, so processes may be added or removed meanwhile."""
        return iter(tuple(self._processes))

    def __bool__(self) -> bool:
        return bool(self._processes)

    def add(self, process: Process) -> None:
        self._processes.append(process)

    def remove(self, process: Process) -> bool:
        """Removes a process that has ended. Returns false if it was removed before."""
        if process not in self._processes:
            return False
        self._processes.remove(process)
        process.control.close()
        return True

    def claim(self, process: Process, pid: int) -> End | None:
        """Records the pid that the process reports. Returns how the process ended if it already
        has, else `None`."""
        status = self._unclaimed.pop(pid, None)
        if any(each.pid == pid for each in self._processes):
            return None
        if status is None and not self._is_ours(pid):
            # The message comes from application code that ran between the template's two forks.
            return None
        process.pid = pid
        if all(each.pid for each in self._processes):
            self._unclaimed.clear()
        return End.from_status(status) if status is not None else None

    def reap(self) -> Iterator[tuple[Process, End]]:
        """Reaps children that have ended, including orphans of applications, and yields the
        processes among them. Never blocks."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = self._system.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self.others:
                    self.others.remove(pid)
                    continue
                process = next((each for each in self._processes if each.pid == pid), None)
                if process is not None:
                    yield process, End.from_status(status)
                elif any(not each.pid for each in self._processes):
                    self._unclaimed[pid] = status
                # Otherwise the child is an application's orphan, whose pid may be reused.

    def stops(self) -> Iterator[tuple[Process, int | None]]:
        """The processes that were stopped or continued since the last call: each with the number
        of the signal that stopped it, or `None` if it was continued. Never blocks."""
        options = os.WSTOPPED | os.WCONTINUED | os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while (change := self._system.waitid(os.P_ALL, 0, options)) is not None:
                stopped = change.si_code == os.CLD_STOPPED
                for process in self._processes:
                    if process.pid == change.si_pid:
                        yield process, change.si_status if stopped else None

    def kill(self) -> None:
        """Kills all processes with SIGKILL and waits until they have ended."""
        for process in self._processes:
            process.signal(signal.SIGKILL)
        for pid in self.others:
            self.kill_other(pid)
        for pid in (*(each.pid for each in self._processes), *self.others):
            if pid:
                with contextlib.suppress(ChildProcessError):
                    self._system.waitpid(pid, 0)
        self._processes.clear()
        self.others.clear()

    def kill_other(self, pid: int) -> None:
        """Kills one of `others` and what it has started; `reap` reaps it."""
        if pid in self.others:
            self._system.killpg(pid, signal.SIGKILL)

    def _is_ours(self, pid: int) -> bool:
        """Whether `pid` is a child of this process."""
        try:
            self._system.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True
