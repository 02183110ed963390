"""A program that a test has started: what it says on stderr is gathered as it comes."""

from __future__ import annotations

import re
import signal
import subprocess
import threading

from launch import SLOWNESS
from process_tree import Watched, descendants, state

TIMEOUT_S = 30 * SLOWNESS


class StartedProgram:
    """`stderr` ends with a zero once nothing more can come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.stderr = ""
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read_stderr)
        self._reader.start()

    def _read_stderr(self) -> None:
        for line in self.process.stderr:
            with self._said:
                self.stderr += line
                self._said.notify_all()
        with self._said:
            self.stderr += "\0"
            self._said.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits until stderr has a match."""
        with self._said:
            said = self._said.wait_for(
                lambda: re.search(pattern, self.stderr) or self.stderr.endswith("\0"), TIMEOUT_S
            )
            found = re.search(pattern, self.stderr)
            assert found, f"{pattern!r} is not in stderr ({said=}):\n{self.stderr}"
            return found

    def end(self, number: signal.Signals | None, *, kills: bool = False) -> int:
        """Ends it as a user would (`None`: it has its signal) and returns its exit code. Fails if
        it kills one of its processes, unless `kills`."""
        pid = self.process.pid
        with Watched(each for each in descendants(pid) if state(each) != "Z") as processes:
            status = self._end(number)
            assert kills or not processes.killed(), (processes.killed(), self.stderr)
            return status

    def _end(self, number: signal.Signals | None) -> int:
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._reader.join(TIMEOUT_S)
            assert not self._reader.is_alive(), f"who holds its stderr open?\n{self.stderr}"
            self.process.stderr.close()
