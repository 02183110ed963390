"""A process that the supervisor started, as the supervisor sees it: what it was told, what it said,
how it ended. Decides nothing.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import signal
import subprocess
import time
from typing import Any, NamedTuple

from headway.errors import CommandError
from headway.server import free_threading
from headway.server.control import Control, Gone, Message
from headway.server.settings import ProcessGroup, Telemetry
from headway.server.signals import IGNORED, SUPERVISORS_SIGNALS
from headway.server.system import System
from headway.server.task import Task

# For `python -c`, with the control socket's descriptor behind it. The current directory must not
# be searched for Headway's own imports: an application may have a signal.py. Does not work:
# - `-m` does search it, and -P, which prevents that, is not in Python 3.10, and would be handed on
#   to whatever the application starts with its own flags;
# - a script has a path, which is another in each group's `python-home`; and like a module it would
#   be imported again by every process that the application starts by multiprocessing.
# So what `ps` is to show is a string, which the program begins with.
PROGRAM = (
    "{name!a}; import sys; sys.path[:1] == [''] and sys.path.pop(0); "
    "from headway.server.worker.start import main; main()"
)

CHECK_TIMEOUT_S = 30
MESSAGES_AT_ONCE = 100


class State(enum.Enum):
    # Imports the application; nothing was served yet.
    STARTING = "starting"
    # Could serve, and waits to be told.
    READY = "ready"
    SERVING = "serving"
    # Answers what it has while others serve.
    RETIRING = "retiring"
    # Was told to end: by SIGTERM, or harder.
    STOPPING = "stopping"


class Failure(NamedTuple):
    """What a process said before it gave up."""

    exit_code: int
    message: str
    # A traceback, or "".
    details: str


class Process:
    """A worker or a template. `deadline` is when its state must be over, by the system's
    clock."""

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
        # 0: forked by a template, and did not say yet.
        self.pid = 0
        self.state = State.STARTING
        self.since = time.time()
        self.serving_since: float | None = None
        self.deadline: float | None = None
        # The signal that has stopped it, if one has (SIGSTOP); and how long that is borne.
        self.stopped_by: int | None = None
        self.stopped_until: float | None = None
        self.failure: Failure | None = None
        # Why the supervisor ends it; "" if it does not. And what was said about that.
        self.reason = ""
        self.detail = ""
        self.telemetry: Telemetry | None = None
        # When it began, if it has reported that; and whether it has reported its end.
        self.reports_since: float | None = None
        self.has_reported = False
        self.was_killed = False
        self.has_closed = False
        # Whether it has a GIL; `None`: it did not say yet.
        self.gil_enabled: bool | None = None
        # Modules that it imported without a GIL, and that do not declare that they can do so.
        self.undeclared: list[str] = []
        # What it said when it was last asked; `None` if it did not.
        self.requests: int | None = None
        # Likewise of its interpreters, where it has sub-interpreters (`serving.InterpreterRow`).
        self.interpreters: list[dict[str, Any]] = []

    def __str__(self) -> str:
        what = "template" if self.is_template else f"process {self.number}"
        return f"{what} of group {self.group.name} (pid {self.pid or 'unknown'})"

    @property
    def is_ready(self) -> bool:
        return self.state is State.READY

    def enter(self, state: State, timeout_s: float = 0.0) -> None:
        """`timeout_s`: how long it may be in it; 0 for ever."""
        self.state = state
        self.since = time.time()
        now = self._system.monotonic()
        self.deadline = now + timeout_s if timeout_s else None
        if state is State.SERVING:
            self.serving_since = now

    def note_stop(self, number: int | None) -> None:
        """`None`: it goes on."""
        limit_s = self.group.deadlock_timeout_s
        self.stopped_by = number
        now = self._system.monotonic()
        self.stopped_until = now + limit_s if number and limit_s else None

    def receive(self) -> list[Message]:
        """What it has said and was not read yet, some of it if it says very much. Never waits.
        Closes the socket if the other side has: the end of the process is told by waitpid."""
        messages = []
        for _ in range(MESSAGES_AT_ONCE):
            if self.control.fileno() < 0:
                break
            try:
                message = self.control.receive(wait=False)
            except Gone:
                self.control.close()
                break
            if message is None:
                break
            messages.append(message)
        return messages

    def tell(self, command: str, **more: str) -> bool:
        """False if it cannot hear any more."""
        return self.control.send({"command": command, **more}, wait=False)

    def signal(self, number: signal.Signals) -> None:
        """Only before it was waited for: later the pid may be another's. A process that did not say
        its pid yet gets no signal, but ends at SIGKILL, when it finds its supervisor gone."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                self._system.kill(self.pid, number)
        elif number == signal.SIGKILL:
            self.control.close()


def spawn(
    task: Task, number: int, generation: int, environment: dict[str, str], system: System
) -> Process:
    """Starts an interpreter on the task. Raises `OSError` if the system cannot."""
    ours, theirs = system.open_pair()
    try:
        process = Process(task.group, number, generation, ours, system)
        process.is_template = task.is_template
        process.telemetry = task.telemetry
        group = task.group
        python = free_threading.interpreter(group.python_home)
        flags = free_threading.other_flags()
        flags += free_threading.mode_flags(group.python_home, group.free_threading)
        # A template's command line is that of the workers which it forks, too.
        place = "" if task.is_template else f", process {number}"
        program = PROGRAM.format(name=f"headway serve: group {group.name}{place}")
        fds = [theirs.fileno(), *(fd for fd, _ in task.listeners)]
        process.pid = system.posix_spawn(
            python,
            [python, *flags, "-c", program, str(theirs.fileno())],
            environment,
            # Onto itself: the child inherits it.
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
        # It ends when it finds that nobody is there.
        ours.close()
        raise OSError(errno.EMSGSIZE, "its task does not fit into a message")
    return process


def fork(template: Process, number: int, system: System) -> Process:
    """Has the template fork a worker; the pid follows in an event of its own."""
    ours, theirs = system.open_pair()
    ours.ask_for_pids()
    process = Process(template.group, number, template.generation, ours, system)
    process.telemetry = template.telemetry
    message = {"command": "fork", "number": number}
    template.control.send(message, wait=False, fds=(theirs.fileno(),))
    theirs.close()
    return process


def check_interpreter(group: ProcessGroup) -> None:
    """Raises `CommandError` if the group's own Python is not there or has not this Headway."""
    if group.python_home is None:
        return
    python = free_threading.interpreter(group.python_home)
    place = f"process group {group.name!r}: python-home {group.python_home!r}"
    # Not at the top: to find the metadata takes megabytes.
    from headway import __version__

    program = "import headway, headway._native; print(headway.__version__)"
    try:
        asked = subprocess.run(
            [python, "-I", "-c", program], capture_output=True, text=True, timeout=CHECK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{place}: {python} does not run ({error})", exit_code=2) from None
    found = asked.stdout.strip()
    if asked.returncode != 0 or found != __version__:
        what = f"has headway {found}" if asked.returncode == 0 else "has no headway"
        raise CommandError(
            f"{place}: {python} {what}, and the same version must be there: "
            f"in Headway's source tree run `{python} -m pip install .`",
            exit_code=2,
        )
    # Known from here on, so that no start of a process waits for the answer.
    free_threading.is_free_threaded(group.python_home)


def name_of(number: int) -> str:
    """Of a signal."""
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
        """As one word, to count by."""
        if self.signal_number is None:
            return f"exit_status_{self.exit_code}"
        return name_of(self.signal_number)

    @property
    def death(self) -> str:
        """In words."""
        if self.signal_number is None:
            return f"exit status {self.exit_code}"
        return f"killed by {self.reason}"

    def __str__(self) -> str:
        if self.signal_number is None:
            return f"ended with exit status {self.exit_code}"
        core = " (core dumped)" if self.dumped_core else ""
        return f"was ended by {self.reason}{core}"
