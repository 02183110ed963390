"""A supervisor whose time and processes a test controls.

Everything of the supervisor is real, its sockets included, but `headway.server.system`: in its
place is a `Machine`. Time passes there only while the supervisor waits, from one thing that is due
to the next, so a test of minutes takes milliseconds. Its processes are objects that the test has
end, stop and send messages; by default they import their application at once, serve, and end when
the supervisor has them end.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from served import STAMP

from headway import __version__
from headway.address import Address
from headway.server import free_threading
from headway.server.control import Control, Datagram, Gone, open_pair
from headway.server.settings import ProcessGroup, ServerSettings
from headway.server.signals import RECORDERS_END
from headway.server.supervisor.listeners import Listeners
from headway.server.supervisor.loop import Supervisor
from headway.server.supervisor.process import Process

# Beyond every pid that Linux gives.
FIRST_PID = 5_000_001
# A supervisor that goes round so often in one wait spins.
MAX_TURNS = 5_000
DAYS_S = 86_400.0 * 100


class Machine:
    """The functions of `System`, for processes that there are not."""

    def __init__(self) -> None:
        self.now = 1000.0
        # All that were ever started, in order.
        self.started: list[Simulated] = []
        # Whether a process that starts reports at once that it has imported its application, and
        # whether one that is to end does so.
        self.imports = True
        self.obeys = True
        # Whether a process that a template forks sends its pid at once.
        self.claims = True
        # Whether a Python that is asked for its build and its version answers at once.
        self.answers = True
        # Whether the configuration is read at once, or when the test has it read.
        self.reads = True
        self.to_read: list[Callable[[], None]] = []
        # Raised by the start of a process.
        self.spawn_error: OSError | None = None
        # Writes SIGCHLD for the supervisor.
        self.notify_of_child: Callable[[], None] = lambda: None
        # Has things happen while the supervisor sleeps.
        self.while_it_sleeps: Callable[[], None] = lambda: None
        self.has_adopted_orphans = False
        # How far time may pass, and whether the supervisor waits for what comes later.
        self.until = self.now
        self.is_quiet = False
        self._pids = itertools.count(FIRST_PID)
        self._zombies: dict[int, int] = {}
        self._changes: list[SimpleNamespace] = []
        # The supervisor's ends of control sockets, by the inode of the other end.
        self._ours: dict[int, _Control] = {}
        self._ends: list[Control] = []

    @property
    def alive(self) -> list[Simulated]:
        return [each for each in self.started if each.is_alive]

    # For the supervisor

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.while_it_sleeps()
        for process in self.alive:
            process.react()

    def poll(self, sources: select.poll, timeout_ms: int | None) -> list[tuple[int, int]]:
        # A template starts others on the way.
        for process in self.started:
            process.react()
        ready = sources.poll(0)
        self.is_quiet = False
        if not ready:
            due = float("inf") if timeout_ms is None else self.now + timeout_ms / 1000
            self.is_quiet = due > self.until
            self.now = min(due, self.until)
        return ready

    def posix_spawn(
        self, path: str, arguments: list[str], environment: dict[str, str], **options: Any
    ) -> int:
        if self.spawn_error is not None:
            raise self.spawn_error
        if free_threading.QUESTION[-1] in arguments:
            fd = next(fd for action, fd, to, *_ in options["file_actions"] if to == 1)
            self.started.append(Asked(self, next(self._pids), os.dup(fd), arguments))
            return self.started[-1].pid
        control = None
        if "telemetry" not in arguments:
            control = Control(socket.socket(fileno=os.dup(int(arguments[-1]))))
        return self._start(control, environment, arguments)

    def kill(self, pid: int, number: int) -> None:
        process = self._find(pid)
        if process is None and pid not in self._zombies:
            raise ProcessLookupError
        if process is not None:
            process.signals.append(number)
            if number == signal.SIGKILL:
                process.is_ended_by(signal.SIGKILL)

    def killpg(self, group: int, number: int) -> None:
        self.kill(group, number)

    def kill_group_with_reader(self, fd: int, group: int) -> None:
        pass

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        found = next(iter(self._zombies), None) if pid == -1 else pid
        if found in self._zombies:
            return found, self._zombies.pop(found)
        if not (self.alive if pid == -1 else self._find(pid)):
            raise ChildProcessError
        assert options & os.WNOHANG, f"waits for process {pid} for ever"
        return 0, 0

    def waitid(self, kind: int, pid: int, options: int) -> SimpleNamespace | None:
        if kind == os.P_ALL:
            if not self.alive and not self._zombies:
                raise ChildProcessError
            return self._changes.pop(0) if self._changes else None
        if self._find(pid) is None and pid not in self._zombies:
            raise ChildProcessError
        return None

    def open_pair(self) -> tuple[Control, Control]:
        ours, theirs = (each.socket for each in open_pair())
        self._ours[os.fstat(theirs.fileno()).st_ino] = control = _Control(ours)
        self._ends.append(control)
        return control, Control(theirs)

    def start_thread(self, function: Callable[[], None]) -> None:
        self.to_read.append(function)
        if self.reads:
            self.read()

    def adopt_orphans(self) -> None:
        self.has_adopted_orphans = True

    def close(self) -> None:
        """At the end, where the supervisor would end with its process."""
        for control in (*self._ends, *(each.control for each in self.started)):
            if control is not None:
                control.close()

    # For the test

    def read(self) -> None:
        """Has the supervisor's other thread read the configuration."""
        self.to_read.pop(0)()

    # For its processes

    def fork(self, end: socket.socket, number: int) -> None:
        pid = self._start(Control(end), {}, [])
        self._ours[os.fstat(end.fileno()).st_ino].sender = pid
        self.started[-1].number = number
        self.started[-1].is_fork = True

    def sender_of(self, process: Simulated, pid: int) -> None:
        """Sets the pid that the supervisor gets with messages of a forked process."""
        assert process.control is not None
        self._ours[os.fstat(process.control.fileno()).st_ino].sender = pid

    def _start(
        self, control: Control | None, environment: dict[str, str], arguments: list[str]
    ) -> int:
        pid = next(self._pids)
        self.started.append(Simulated(self, pid, control, environment, arguments))
        return pid

    def _find(self, pid: int) -> Simulated | None:
        return next((each for each in self.alive if each.pid == pid), None)

    def note_end(self, pid: int, status: int) -> None:
        self._zombies[pid] = status
        self.notify_of_child()

    def note_change(self, pid: int, code: int, status: int) -> None:
        self._changes.append(SimpleNamespace(si_pid=pid, si_code=code, si_status=status))
        self.notify_of_child()


class _Control(Control):
    """Datagrams of a forked process have its pid, which the kernel supplies to `System`."""

    sender = 0

    def receive_datagram(self, max_fds: int = 0, *, wait: bool = True) -> Datagram | None:
        datagram = super().receive_datagram(max_fds, wait=wait)
        return datagram if datagram is None else datagram._replace(pid=self.sender)


class Simulated:
    """A worker, a template, or the recorder of `--dashboard`, which has no control socket."""

    def __init__(
        self,
        machine: Machine,
        pid: int,
        control: Control | None,
        environment: dict[str, str],
        arguments: list[str],
    ) -> None:
        self._machine = machine
        self.pid = pid
        self.control = control
        self.is_recorder = control is None
        self.environment = environment
        self.arguments = arguments
        self.imports, self.obeys, self.claims = machine.imports, machine.obeys, machine.claims
        self.started_at = machine.now
        # The task of one that was spawned; a fork has its number alone.
        self.task: dict[str, Any] = {}
        self.number = 0
        self.is_fork = False
        self.is_alive = True
        # Those that it has read; a stopped process reads none.
        self.commands: list[dict[str, Any]] = []
        self.signals: list[int] = []
        self.is_stopped = False
        self._has_begun = False
        self.requests = 0

    @property
    def is_template(self) -> bool:
        return bool(self.task.get("is_template"))

    def command_names(self) -> list[str]:
        return [each["command"] for each in self.commands]

    # For the test

    def sends(self, event: str, **more: Any) -> None:
        assert self.control is not None
        assert self.control.send({"event": event, **more}, wait=False)

    def exits(self, code: int = 0) -> None:
        self._end(code << 8)

    def is_ended_by(self, number: signal.Signals) -> None:
        self._end(int(number))

    def fails(self, exit_code: int, message: str, details: str = "") -> None:
        """As one whose application cannot be imported."""
        self.sends("failed", exit_code=exit_code, message=message, details=details)
        self.exits(exit_code)

    def stops(self, number: signal.Signals = signal.SIGSTOP) -> None:
        self.is_stopped = True
        self._machine.note_change(self.pid, os.CLD_STOPPED, number)

    def goes_on(self) -> None:
        self.is_stopped = False
        self._machine.note_change(self.pid, os.CLD_CONTINUED, signal.SIGCONT)

    def ends(self) -> None:
        """As a worker that has answered all its requests."""
        if self.control is not None and not self.is_template:
            self.sends("closed")
            self.sends("stopped")
        self.exits()

    def _end(self, status: int) -> None:
        self.is_alive = False
        if self.control is not None:
            # Unread messages would be an error at the other end (ECONNRESET).
            message: Any = {}
            with contextlib.suppress(Gone):
                while message is not None:
                    message, fds = self.control.receive_with_fds(1, wait=False)
                    for fd in fds:
                        os.close(fd)
            self.control.close()
        self._machine.note_end(self.pid, status)

    # For the machine

    def react(self) -> None:
        """Reads its messages, and does what they ask for."""
        if self.is_stopped or not self.is_alive:
            return
        while self.is_alive and self.control is not None:
            try:
                message, fds = self.control.receive_with_fds(1, wait=False)
            except Gone:
                # The supervisor has closed its end.
                self.exits()
                return
            if message is None:
                break
            self._obey(message, fds)
        if not self._has_begun:
            self._has_begun = True
            self._begin()
        if self.is_alive and self.obeys and self._end_signal() in self.signals:
            self.ends()

    def _end_signal(self) -> int:
        # The recorder blocks SIGTERM.
        return RECORDERS_END if self.is_recorder else signal.SIGTERM

    def _begin(self) -> None:
        if self.control is None:
            return
        if self.is_fork and self.claims:
            self.sends("started")
        if self.imports and (self.claims or not self.is_fork):
            self.sends("ready")

    def _obey(self, message: dict[str, Any], fds: list[int]) -> None:
        if "command" not in message:
            self.task = message
            self.number = message["number"]
            return
        self.commands.append(message)
        command = message["command"]
        if command == "fork":
            self._machine.fork(socket.socket(fileno=fds[0]), message["number"])
        elif command == "count" and self.obeys:
            self.sends("requests", count=self.requests, interpreters=[])
        elif command == "retire" and self.obeys:
            self.ends()


class Asked(Simulated):
    """The Python of a `python-home` that is asked."""

    def __init__(self, machine: Machine, pid: int, pipe: int, arguments: list[str]) -> None:
        super().__init__(machine, pid, None, {}, arguments)
        self.is_recorder = False
        self._pipe = pipe
        self._answers = machine.answers

    def answers(self, text: str = f"None\n{__version__}\n") -> None:
        os.write(self._pipe, text.encode())
        self.exits()

    def _begin(self) -> None:
        if self._answers:
            self.answers()

    def _end(self, status: int) -> None:
        os.close(self._pipe)
        super()._end(status)


class _Signals:
    """As `signals.Signals`, without handlers."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)

    def fileno(self) -> int:
        return self._read_fd

    def send(self, *numbers: int) -> None:
        os.write(self._write_fd, bytes(numbers))

    def read(self) -> list[int]:
        try:
            return list(dict.fromkeys(os.read(self._read_fd, 4096)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


class Simulation:
    """A supervisor on a machine of its own, from its beginning, when this is entered, to its end.
    `groups` are dicts of `ProcessGroup` fields; by default one on a free port."""

    def __init__(
        self,
        *groups: dict[str, Any],
        machine: Machine | None = None,
        watcher: Any = None,
        status_socket: Any = None,
        dashboard: Callable[[Machine], Any] = lambda _: None,
        **server: Any,
    ) -> None:
        self.machine = machine or Machine()
        self.settings = settings(*groups, **server)
        self.signals = _Signals()
        self.machine.notify_of_child = lambda: self.signals.send(signal.SIGCHLD)
        self.listeners = Listeners()
        self.dashboard = dashboard(self.machine)
        self.watcher = watcher
        self.status_socket = status_socket
        self._stderr = io.StringIO()
        self._stack = contextlib.ExitStack()
        self.supervisor: Supervisor

    def __enter__(self) -> Simulation:
        with self._stack:
            self._stack.callback(self.signals.close)
            self._stack.callback(self.machine.close)
            self._stack.enter_context(contextlib.redirect_stderr(self._stderr))
            self.supervisor = Supervisor(
                self._reread,
                self.listeners,
                self.signals,
                self.watcher,
                self.status_socket,
                self.dashboard,
                self.machine,
            )
            if self.dashboard is not None:
                self._stack.callback(self.dashboard.close)
            self._stack.callback(self._end)
            self.supervisor.begin(self.settings)
            self.wait()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is not None:
            print(self._stderr.getvalue(), file=sys.stderr)

    def _end(self) -> None:
        # The supervisor waits for its recorder as long as it must.
        self.machine.until = self.machine.now + DAYS_S
        self.supervisor.end()

    def _reread(self) -> ServerSettings:
        return self.settings

    # Time

    def wait(self, seconds: float = 0.0) -> None:
        """Has so much time pass; all that happens now or is due by then is done."""
        self.machine.until = self.machine.now + seconds
        for _ in self._turns():
            pass

    def time_until(self, condition: Callable[[], object]) -> float:
        """How many seconds pass until the condition holds."""
        began = self.machine.now
        self.machine.until = began + DAYS_S
        turns = self._turns()
        while not condition():
            if next(turns, self) is self:
                break
        else:
            return round(self.machine.now - began, 2)
        raise AssertionError("it is quiet, and the condition does not hold")

    def _turns(self) -> Iterator[None]:
        for _ in range(MAX_TURNS):
            if self.supervisor.is_over():
                return
            self.supervisor.take_turn()
            yield
            if self.machine.is_quiet:
                return
        raise AssertionError("the supervisor goes round and round")

    # For the test

    def send(self, *numbers: signal.Signals) -> None:
        """Signals to the supervisor, all at once."""
        self.signals.send(*numbers)
        self.wait()

    def reload(self, *groups: dict[str, Any], **server: Any) -> None:
        """SIGHUP, with other settings if there are any."""
        if groups or server:
            self.settings = settings(*groups, **server)
        self.send(signal.SIGHUP)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.send(signal.SIGTERM)
        self.time_until(self.supervisor.is_over)
        return self.exit_status()

    def exit_status(self) -> int:
        assert self.supervisor.is_over()
        return self.supervisor.exit_status()

    @property
    def workers(self) -> list[Simulated]:
        """Those that are alive, by number, the older first."""
        others = [*self.templates, *self.recorders, *self.asked]
        found = [each for each in self.machine.alive if each not in others]
        return sorted(found, key=lambda each: each.number)

    @property
    def templates(self) -> list[Simulated]:
        return [each for each in self.machine.alive if each.is_template]

    @property
    def recorders(self) -> list[Simulated]:
        return [each for each in self.machine.alive if each.is_recorder]

    @property
    def asked(self) -> list[Asked]:
        """The Pythons that have not answered."""
        return [each for each in self.machine.alive if isinstance(each, Asked)]

    def newest(self) -> Simulated:
        return self.machine.started[-1]

    def seen(self, process: Simulated) -> Process:
        """The supervisor's object for it."""
        children = self.supervisor._children
        return next(each for each in children if each.pid == process.pid)

    def states(self) -> list[str]:
        """The states of all processes, in the order of their start."""
        return [each.state.value for each in self.supervisor._children]

    @property
    def log(self) -> list[str]:
        """The lines on stderr without warnings."""
        return [line for line in self.lines() if line and not line.startswith("warning: ")]

    def lines(self) -> list[str]:
        """The lines on stderr, without stamps. For a pid there is the place among all processes
        that were started, from #1."""
        text = re.sub(rf"(?m)^(?:{STAMP})?headway serve: ", "", self._stderr.getvalue())
        text = re.sub(r"\b5\d{6}\b", lambda pid: f"#{int(pid[0]) - FIRST_PID + 1}", text)
        return text.splitlines()

    def deaths(self, group: str = "main") -> dict[str, int]:
        return dict(self.supervisor._life_cycle.deaths[group].by_reason)


def settings(*groups: dict[str, Any], **server: Any) -> ServerSettings:
    default: dict[str, Any] = {"binds": (Address("127.0.0.1", 0),)}
    made = tuple(ProcessGroup(**default | each) for each in groups or ({},))
    return ServerSettings(groups=made, **server)
