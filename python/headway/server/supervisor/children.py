"""All processes that the supervisor has started and not waited for, of whichever generation.

One that a template forks becomes a child of the supervisor by the kernel's adoption, and says its
pid when it runs; it may end before that is heard. Knows nothing of why a process starts or ends.
The supervisor's one thread uses this.
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
        # Wait statuses of processes that did not say yet that they are ours.
        self._unclaimed: dict[int, int] = {}

    def __iter__(self) -> Iterator[Process]:
        """Those that there are now, whatever is added or removed on the way."""
        return iter(tuple(self._processes))

    def __bool__(self) -> bool:
        return bool(self._processes)

    def add(self, process: Process) -> None:
        self._processes.append(process)

    def remove(self, process: Process) -> bool:
        """It has ended. False if that was known."""
        if process not in self._processes:
            return False
        self._processes.remove(process)
        process.control.close()
        return True

    def claim(self, process: Process, pid: int) -> End | None:
        """The process says that this is its pid. How it ended, if it has already."""
        status = self._unclaimed.pop(pid, None)
        if status is None and not self._is_ours(pid):
            # No worker, but its application at work between the two forks.
            return None
        process.pid = pid
        if all(each.pid for each in self._processes):
            self._unclaimed.clear()
        return End.from_status(status) if status is not None else None

    def reap(self) -> Iterator[tuple[Process, End]]:
        """Waits for those that have ended, and for orphans of applications. Never blocks."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = self._system.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                process = next((each for each in self._processes if each.pid == pid), None)
                if process is not None:
                    yield process, End.from_status(status)
                elif any(not each.pid for each in self._processes):
                    self._unclaimed[pid] = status
                # Else an orphan that an application left, and the pid may come again.

    def stops(self) -> Iterator[tuple[Process, int | None]]:
        """Those that a signal has stopped since, with its number, or has had go on, with `None`.
        Never blocks."""
        options = os.WSTOPPED | os.WCONTINUED | os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while (change := self._system.waitid(os.P_ALL, 0, options)) is not None:
                stopped = change.si_code == os.CLD_STOPPED
                for process in self._processes:
                    if process.pid == change.si_pid:
                        yield process, change.si_status if stopped else None

    def kill(self) -> None:
        """Ends all of them at once, and waits until they have."""
        for process in self._processes:
            process.signal(signal.SIGKILL)
        for process in self._processes:
            if process.pid:
                with contextlib.suppress(ChildProcessError):
                    self._system.waitpid(process.pid, 0)
        self._processes.clear()

    def _is_ours(self, pid: int) -> bool:
        """Whether this process may wait for that one, and so knows whose the pid is."""
        try:
            self._system.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True
