"""The recorder process, `headway telemetry`, that `headway serve --dashboard` runs beside its
workers.

The server does not depend on the recorder. A recorder that ends is restarted with a growing delay,
unless it exited with status 2 after it logged why it cannot run. The recorder starts before the
first worker and ends after the last one, so that it receives every report. Only the supervisor's
single thread uses this module.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from dataclasses import replace

from headway.address import Address
from headway.errors import CommandError, reason_of
from headway.server import free_threading
from headway.server.settings import ServerSettings
from headway.server.signals import IGNORED, RECORDERS_END, SUPERVISORS_SIGNALS, Signals
from headway.server.stderr import say
from headway.server.supervisor.process import End
from headway.server.system import System

# As in `process.PROGRAM`, imports do not search the current directory, and `ps` shows the string.
# The kernel sends the signal only if the server ends later than this process asks for it. A server
# that was killed has left the socket's directory.
PROGRAM = (
    "'headway serve: dashboard'; import os, sys; sys.path[:1] == [''] and sys.path.pop(0); "
    f"from headway import _native; _native.process_end_with_parent({RECORDERS_END:d}); "
    "from headway.cli import main; "
    "status = main(sys.argv[1:]) if os.getppid() == {parent} else 0; "
    "os.getppid() == {parent} or [os.rmdir(each) for each in {folders}]; sys.exit(status)"
)
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0
START_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 10.0
# Where everything ends at once, as on SIGQUIT.
AT_ONCE_TIMEOUT_S = 1.0


class Folder:
    """A directory for a socket that any process can reach that inherits `fd`, whoever its user is,
    and no other process of another user.

    The name of the socket is no secret, since `ps` and /proc/net/unix show it. So the way by name
    leads through a directory of the server's user. Only the way by descriptor does not."""

    def __init__(self) -> None:
        """Raises `CommandError`."""
        self.outer = ""
        try:
            self.outer = tempfile.mkdtemp(prefix="headway-")
            self.inner = f"{self.outer}/open"
            os.mkdir(self.inner)
            os.chmod(self.inner, 0o711)
            self.fd = os.open(self.inner, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            shutil.rmtree(self.outer, ignore_errors=True)
            where = "a temporary directory for the socket of its recorder"
            raise CommandError(f"--dashboard: {where}: {reason_of(error)}") from None
        if not os.path.exists(f"/proc/self/fd/{self.fd}"):
            self.remove()
            raise CommandError(
                "--dashboard: /proc is not mounted here, through which processes reach the socket "
                "of its recorder: start headway telemetry, and give --telemetry unix:PATH"
            )

    def remove(self) -> None:
        os.close(self.fd)
        shutil.rmtree(self.outer, ignore_errors=True)


class Dashboard:
    def __init__(self, http: Address, store: str | None, path: str | None, system: System) -> None:
        """`path` is the socket that the processes report to; `None` creates one that only this
        server's processes and its user can reach. Raises `CommandError`."""
        self._system = system
        self._http = http
        self._store = store
        self._folder = None
        # The socket as the recorder names it, and as this process and its workers do.
        self._listen = self.path = path or ""
        if path is None:
            self._folder = Folder()
            self._listen = f"{self._folder.inner}/telemetry"
            self.path = f"/proc/self/fd/{self._folder.fd}/telemetry"
        self._pid = 0
        self._delay_s = FIRST_DELAY_S
        self._has_been_stopped = False
        self._stop_timeout_s = STOP_TIMEOUT_S
        # When to restart the recorder or, after `stop`, to kill it, by the system's clock; `None`
        # if neither is due.
        self.deadline: float | None = None

    @property
    def is_running(self) -> bool:
        return self._pid != 0

    def heard_by(self, settings: ServerSettings) -> ServerSettings:
        """Returns the settings with this recorder's socket as `telemetry`."""
        fd = None if self._folder is None else self._folder.fd
        return replace(settings, telemetry=self.path, telemetry_fd=fd)

    def start(self) -> None:
        self.deadline = None
        options = ["--listen", f"unix:{self._listen}", "--http", str(self._http)]
        if self._store is not None:
            options += ["--store", self._store]
        if self._folder is not None:
            # Workers may have other users.
            options += ["--socket-mode", "0666"]
        python = sys.executable
        flags = free_threading.other_flags()
        folders = () if self._folder is None else (self._folder.inner, self._folder.outer)
        program = PROGRAM.format(parent=os.getpid(), folders=folders)
        try:
            self._pid = self._system.posix_spawn(
                python,
                [python, *flags, "-c", program, "telemetry", *options],
                os.environ,
                # A signal to the whole process group is for the supervisor, which ends the recorder
                # last. So the recorder unblocks only that signal, once it can handle it.
                setsigmask=(*SUPERVISORS_SIGNALS, signal.SIGTERM, signal.SIGQUIT, RECORDERS_END),
                setsigdef=IGNORED,
            )
        except OSError as error:
            say(f"the dashboard cannot be started: {error}; the next attempt is {self._retry()}")

    def wait_until_it_listens(self, signals: Signals) -> None:
        """Waits up to `START_TIMEOUT_S` until the recorder listens, so that it receives the reports
        of the first processes. The limit is short because serving matters more. A signal ends the
        wait, and is left to the caller."""
        end = self._system.monotonic() + START_TIMEOUT_S
        arrived = select.poll()
        arrived.register(signals, select.POLLIN)
        while self._pid and self._system.monotonic() < end and not arrived.poll(0):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
                if ours.connect_ex(self.path) == 0:
                    return
            self.tend()
            self._system.sleep(0.01)

    def tend(self, *, is_stopping: bool = False) -> None:
        """Reaps the recorder if it has ended, and restarts or kills it when that is due, but does
        not restart it while the server stops. Must be called before `Children.reap`, which reaps
        any child."""
        is_due = self.deadline is not None and self._system.monotonic() >= self.deadline
        if self._pid:
            status = self._status()
            if status is not None:
                self._pid = 0
                self.deadline = None
                if not self._has_been_stopped or status != 0:
                    self._note_end(End.from_status(status), is_stopping)
            elif is_due:
                limit_s = self._stop_timeout_s
                say(f"the dashboard has not ended after {limit_s:g} s and is killed")
                self.kill()
        elif is_stopping:
            self.deadline = None
        elif is_due:
            self.start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Has the recorder write everything and end. `tend` kills it after the timeout. To be
        called when no process reports any more."""
        self.tend(is_stopping=True)
        self._has_been_stopped, self._stop_timeout_s = True, timeout_s
        if self._pid:
            self._system.kill(self._pid, RECORDERS_END)
            self.deadline = self._system.monotonic() + timeout_s

    def kill(self) -> None:
        """Kills the recorder after `stop`; has no effect before."""
        if self._pid and self._has_been_stopped:
            self._system.kill(self._pid, signal.SIGKILL)
            self.deadline = None

    def close(self) -> None:
        """Removes the socket's directory."""
        if self._folder is not None:
            self._folder.remove()

    def _note_end(self, end: End, is_stopping: bool) -> None:
        if end.exit_code == 2:
            # The recorder has logged the reason. A restart would fail for the same reason.
            say("the dashboard cannot run; the server goes on without it")
        elif is_stopping:
            say(f"the dashboard {end}; the last reports may be missing from its store")
        else:
            say(f"the dashboard {end}; it starts again {self._retry()}")

    def _retry(self) -> str:
        """Plans a restart. Returns when it is, for the log."""
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, LONGEST_DELAY_S)
        self.deadline = self._system.monotonic() + delay_s
        return f"in {delay_s:g} s"

    def _status(self) -> int | None:
        """The recorder's wait status if it has ended, or `None` while it runs. If it was already
        reaped elsewhere, returns the wait status of exit status 1."""
        try:
            done, status = self._system.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return 1 << 8
        return status if done else None
