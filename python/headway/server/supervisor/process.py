"""A process that the supervisor started: its commands, its messages and its end.

This module makes no decisions about processes.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import signal
import time
from typing import NamedTuple

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.server import free_threading
from headway.server.control import MAX_DATAGRAM_BYTES, Control, Gone
from headway.server.settings import ProcessGroup, Telemetry
from headway.server.signals import IGNORED, SUPERVISORS_SIGNALS
from headway.server.stderr import say
from headway.server.supervisor.messages import Event, Malformed, parse
from headway.server.supervisor.status_document import InterpreterStatus
from headway.server.system import System
from headway.server.task import Task

# The program for `python -c`, whose argument is the control socket's descriptor. Headway's own
# imports must not search the current directory, since an application may have a signal.py. The
# alternatives do not work:
# - `-m` searches the current directory. -P prevents that, but Python 3.10 does not have it, and
#   programs that the application starts with its own flags would inherit it.
# - A script has a path, which differs in each group's `python-home`. Like a module, it would also
#   be imported again by every process that the application starts with multiprocessing.
# The program begins with a string so that `ps` shows it.
PROGRAM = (
    "{name!a}; import sys; sys.path[:1] == [''] and sys.path.pop(0); "
    "from headway.server.worker.start import main; main()"
)

# How much is read from one process before the others, signals and deadlines have their turn: a
# process may send without end.
MESSAGES_AT_ONCE = 100
BYTES_AT_ONCE = 2 * MAX_DATAGRAM_BYTES


class State(enum.Enum):
    # Imports the application and has served no request.
    STARTING = "starting"
    # Has imported the application and waits for the command to serve.
    READY = "ready"
    SERVING = "serving"
    # Answers the requests that it has while other processes serve.
    RETIRING = "retiring"
    # Ends: it got SIGTERM, or it retired and has finished its requests.
    STOPPING = "stopping"


class Failure(NamedTuple):
    """A failure that a process reported before it ended."""

    exit_code: int
    message: str
    # A traceback, or "".
    details: str


class Process:
    """A worker or a template. `deadline` is the time by which it must leave its state, by the
    system's clock."""

    def __init__(
        self,
        group: ProcessGroup,
        number: int,
        generation: int,
        control: Control,
        system: System,
    ) -> None:
        self._system = system
        self.group = group
        self.number = number
        self.generation = generation
        self.is_template = False
        self.control = control
        # 0 until a process that a template forked reports its pid.
        self.pid = 0
        self.state = State.STARTING
        self.since = time.time()
        self.serving_since: float | None = None
        self.deadline: float | None = None
        # The signal that stopped the process (such as SIGSTOP), and how long it may stay stopped.
        self.stopped_by: int | None = None
        self.stopped_until: float | None = None
        self.failure: Failure | None = None
        # Why the supervisor ends the process, "" if it does not, and details of that.
        self.reason = ""
        self.detail = ""
        self.telemetry: Telemetry | None = None
        # The start time that the process reported to the recorder, `None` if it reported none, and
        # whether it has reported its end.
        self.reports_since: float | None = None
        self.has_reported = False
        self.was_killed = False
        self.has_closed = False
        # Whether it has told that no request is in flight any more.
        self.has_stopped = False
        # How many of its messages were malformed.
        self.malformed = 0
        # Whether the process has a GIL; `None` until it reports that.
        self.gil_enabled: bool | None = None
        # Modules that it imported without a GIL and that do not declare that they can run so.
        self.undeclared: list[str] = []
        # The switch interval that it has by its configuration, as it reports when it is ready.
        self.switch_interval_s = DEFAULT_SWITCH_INTERVAL_S
        # The policy and the switch interval that it has now; `None` before it is ready.
        self.gil_setting: tuple[str, float] | None = None
        # The request count of the last status request; `None` if the process did not answer.
        self.requests: int | None = None
        # The rows of the last status request, for a process with sub-interpreters.
        self.interpreters: list[InterpreterStatus] = []

    def __str__(self) -> str:
        what = "template" if self.is_template else f"process {self.number}"
        return f"{what} of group {self.group.name} (pid {self.pid or 'unknown'})"

    @property
    def is_ready(self) -> bool:
        return self.state is State.READY

    def enter(self, state: State, timeout_s: float = 0.0) -> None:
        """Changes the state. `timeout_s` is how long the process may be in it; 0 means no limit."""
        self.state = state
        self.since = time.time()
        now = self._system.monotonic()
        self.deadline = now + timeout_s if timeout_s else None
        if state is State.SERVING:
            self.serving_since = now

    def note_stop(self, number: int | None) -> None:
        """Notes that signal `number` stopped the process, or that it continued (`None`)."""
        limit_s = self.group.deadlock_timeout_s
        self.stopped_by = number
        now = self._system.monotonic()
        self.stopped_until = now + limit_s if number and limit_s else None

    def receive(self) -> list[Event]:
        """Returns the messages not read yet, at most `MESSAGES_AT_ONCE`. Drops those that are
        malformed, and logs the first. Never blocks. Closes the socket if the other side has closed.
        That does not mean that the process has ended, which waitpid reports."""
        events: list[Event] = []
        size = 0
        for _ in range(MESSAGES_AT_ONCE):
            if self.control.fileno() < 0 or size >= BYTES_AT_ONCE:
                break
            try:
                datagram = self.control.receive_datagram(wait=False)
            except Gone:
                self.control.close()
                break
            if datagram is None:
                break
            size += len(datagram.data)
            try:
                events.append(parse(datagram))
            except Malformed as problem:
                self.malformed += 1
                if self.malformed == 1:
                    say(f"{self}: a malformed message is dropped: {problem}; others are not logged")
        return events

    def tell(self, command: str, **more: str | float | None) -> bool:
        """Sends a command. Returns false if the process cannot receive it."""
        return self.control.send({"command": command, **more}, wait=False)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal. Must not be called after the process was reaped, since its pid may be
        reused. A process whose pid is unknown gets no signal. In place of SIGKILL, its control
        socket is closed, at which it ends because its supervisor is gone."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                self._system.kill(self.pid, number)
        elif number == signal.SIGKILL:
            self.control.close()


def spawn(
    task: Task, number: int, generation: int, environment: dict[str, str], system: System
) -> Process:
    """Starts a Python process that runs the task. Raises `OSError` if the system cannot."""
    ours, theirs = system.open_pair()
    try:
        process = Process(task.group, number, generation, ours, system)
        process.is_template = task.is_template
        process.telemetry = task.telemetry
        group = task.group
        python = free_threading.interpreter(group.python_home)
        flags = free_threading.other_flags()
        flags += free_threading.mode_flags(group.python_home, group.free_threading)
        # The workers that a template forks share its command line, so it has no number.
        place = "" if task.is_template else f", process {number}"
        program = PROGRAM.format(name=f"headway serve: group {group.name}{place}")
        fds = [theirs.fileno(), *task.inherited()]
        process.pid = system.posix_spawn(
            python,
            [python, *flags, "-c", program, str(theirs.fileno())],
            environment,
            # Duplicating a descriptor onto itself makes the child inherit it.
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, fd) for fd in fds],
            setsigmask=SUPERVISORS_SIGNALS,
            setsigdef=IGNORED,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    if not ours.send(task.to_message(), wait=False):
        # The process ends when it finds its control socket closed.
        ours.close()
        raise OSError(errno.EMSGSIZE, "its task does not fit into a message")
    return process


def fork(template: Process, group: ProcessGroup, number: int, system: System) -> Process:
    """Commands the template to fork a worker of `group`, which is the template's or that of its
    background process. The worker reports its pid in a "started" event."""
    ours, theirs = system.open_pair()
    ours.ask_for_pids()
    process = Process(group, number, template.generation, ours, system)
    process.telemetry = template.telemetry
    message = {"command": "fork", "number": number, "is_background": group.is_background}
    template.control.send(message, wait=False, fds=(theirs.fileno(),))
    theirs.close()
    return process


def name_of(number: int) -> str:
    """The name of a signal, such as SIGTERM, or `signal_N` for an unknown number."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal_{number}"


class End(NamedTuple):
    """How a process ended, from its wait status."""

    exit_code: int | None
    signal_number: int | None
    dumped_core: bool

    @classmethod
    def from_status(cls, status: int) -> End:
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status), os.WCOREDUMP(status))
        return cls(os.WEXITSTATUS(status), None, False)

    @property
    def reason(self) -> str:
        """One word for the end, as the key of a counter."""
        if self.signal_number is None:
            return f"exit_status_{self.exit_code}"
        return name_of(self.signal_number)

    @property
    def death(self) -> str:
        """The end as a phrase, for reports."""
        if self.signal_number is None:
            return f"exit status {self.exit_code}"
        return f"killed by {self.reason}"

    def __str__(self) -> str:
        if self.signal_number is None:
            return f"ended with exit status {self.exit_code}"
        core = " (core dumped)" if self.dumped_core else ""
        return f"was ended by {self.reason}{core}"
