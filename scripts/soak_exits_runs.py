"""Runs the programs of scripts/soak_exits.py, several at a time, and says how each of them ended.

`Runs` is the parent of every program and, as their subreaper, of every process that loses its
parent. It belongs to one thread, and reaps every child of this process.
"""

from __future__ import annotations

import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from soak_processes import children, described, tree

from headway import _native

PLAIN = "plain"
# Python alone, with an end that takes as long as Headway's report: what is at work then meets more.
SLOW = "plain, ends slowly"
POLICIES = ("interval", "priority", "deadline")
# Each word of a condition: the options of `headway run`, and the words of the variable HEADWAY, for
# which "" is that it cannot do so.
OPTIONS = {
    **{policy: (["--policy", policy], policy) for policy in POLICIES},
    "report": (["--json", "report.json"], "report=report-%p.json"),
    "follow": (["--follow"], "follow"),
    "telemetry": (
        ["--telemetry", "unix:{socket}", "--telemetry-interval", "0.5"],
        "telemetry=unix:{socket},telemetry-interval=0.5",
    ),
    "profile": (["--profile", "profile.json"], ""),
    "trace": (["--trace", "trace.json", "--trace-events", "4096"], ""),
}
# These parts of stderr belong to the outcome. Numbers in them do not count.
TELLING = re.compile(
    r"Fatal Python error: .*|fatal runtime error: .*|.*panicked.*|.*cannot unwind.*|FATAL: .*"
    r"|terminate called.*|free\(\).*|malloc.*|double free.*|corrupted .*|\w*[Aa]ssertion .*"
    r"|[\w.]*(?:Error|Exception|Interrupt|SystemExit)(?=:|$)"
)
# Depends on how far the interpreter's end has got. Counts only if Headway's code raises it.
IGNORED = re.compile(r"^Exception ignored .*\n(?:Traceback .*\n(?: .*\n)*)?.*\n?", re.M)
NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
MAX_OUTPUT_BYTES = 20_000
MAX_DESCRIBED = 12
ORPHAN_POLL_S = 0.01
# The marker is in the environment of every process of a program.
MARKER = "HEADWAY_SOAK_PROGRAM"


class Outcome(NamedTuple):
    """How a program ended. `status`: an exit status, a signal's name, or that it did not end."""

    status: str
    said: str
    # A reader may need this; outcomes are equal without it.
    evidence: str

    def __str__(self) -> str:
        return f"{self.status}; {self.said}" if self.said else self.status


class Task(NamedTuple):
    python: Path
    condition: str
    source: str


@dataclass
class Run:
    pid: int
    number: int
    folder: Path
    deadline_s: float
    may_abort: bool
    ended: Callable[[Outcome], None]
    status: str = ""
    is_alone: bool = False
    orphans: str = ""
    evidence: str = ""


def check_condition(text: str) -> str:
    """Raises ValueError."""
    words = text.split("+")
    if text != PLAIN and (unknown := [word for word in words if word not in OPTIONS]):
        raise ValueError(f"found {unknown[0]!r}; allowed: {', '.join(OPTIONS)}, joined by +")
    if sum(word in POLICIES for word in words) > 1:
        raise ValueError(f"found {text!r}, which has two policies")
    return text


def command(task: Task, program: Path, receiver: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the command line and the changes of the environment that run a program so."""
    python = [str(task.python)]
    if task.condition in (PLAIN, SLOW):
        slow = {"HEADWAY_SOAK_SLOW": "1"} if task.condition == SLOW else {}
        return [*python, str(program)], slow
    words = [OPTIONS[word] for word in task.condition.split("+")]
    measured = {"HEADWAY_SOAK_MEASURED": "1"}
    if all(variable for _, variable in words):
        value = ",".join(variable for _, variable in words).format(socket=receiver)
        return [*python, str(program)], {**measured, "HEADWAY": value}
    options = [each.format(socket=receiver) for given, _ in words for each in given]
    return [*python, "-m", "headway", "run", *options, str(program)], measured


class Runs:
    def __init__(self, folder: Path, limit_s: float) -> None:
        self.folder = folder
        self.limit_s = limit_s
        self._runs: dict[int, Run] = {}
        self._count = 0
        _native.process_adopt_orphans()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._receiver.setblocking(False)
        self._receiver.bind(str(folder / "telemetry.sock"))
        self._wake, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = wakeup
        self._handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def __len__(self) -> int:
        return len(self._runs)

    def start(self, task: Task, ended: Callable[[Outcome], None]) -> None:
        """Calls `ended` from `wait`."""
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        program = folder / "program.py"
        program.write_text(task.source)
        line, changes = command(task, program, self.folder / "telemetry.sock")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADWAY")}
        with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
            process = subprocess.Popen(
                line,
                cwd=folder,
                env={
                    **kept,
                    "TMPDIR": str(folder),
                    "XDG_RUNTIME_DIR": str(folder),
                    MARKER: str(self._count),
                    **changes,
                },
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        # `_end` waits for it.
        process.returncode = 0
        deadline_s = time.monotonic() + self.limit_s
        may_abort = "os.abort()" in task.source
        self._runs[process.pid] = Run(
            process.pid, self._count, folder, deadline_s, may_abort, ended
        )

    def refusal(self, python: Path, condition: str) -> str:
        """The reason why this interpreter cannot run programs in a condition; "" if it can."""
        found: list[Outcome] = []
        self.start(Task(python, condition, ""), found.append)
        while not found:
            self.wait()
        (outcome,) = found
        if outcome.status == "exit 0" and "runs without Headway" not in outcome.evidence:
            return ""
        return (outcome.evidence.strip() or outcome.status).splitlines()[-1]

    def wait(self) -> None:
        """Until something has happened, or for a moment."""
        pause_s = ORPHAN_POLL_S if any(run.status for run in self._runs.values()) else 0.2
        receiver = self._receiver.fileno()
        ready, _, _ = select.select([self._wake, receiver], [], [], pause_s)
        if receiver in ready:
            with suppress(BlockingIOError):
                while self._receiver.recv(1 << 16):
                    pass
        if self._wake in ready:
            os.read(self._wake, 4096)
        self._look_at_children()
        for run in list(self._runs.values()):
            self._look_at(run)

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all that runs."""
        _kill(lambda: {*children(os.getpid())})
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._handler)
        self._receiver.close()
        os.close(self._wake)
        os.close(self._wakeup)

    def _look_at_children(self) -> None:
        for pid in children(os.getpid()):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            if run := self._runs.get(pid):
                # It stays a zombie until `_end`, so that no other process gets its id.
                run.status = _status(ended)
                continue
            if (status := _status(ended)).startswith("SIG") and (run := self._run_of(pid)):
                run.orphans += f"an orphan ended by {status}; "
            os.waitpid(pid, 0)

    def _run_of(self, pid: int) -> Run | None:
        """The program of a process that lost its parent, by its session, or, if it began one of its
        own, by its environment, which is gone once it has ended."""
        with suppress(OSError):
            session = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
            if run := self._runs.get(session):
                return run
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            for run in self._runs.values():
                if f"{MARKER}={run.number}".encode() in environment:
                    return run
        return None

    def _orphans(self, run: Run) -> set[int]:
        adopted = set(children(os.getpid())) - set(self._runs)
        return {pid for pid in adopted if self._run_of(pid) is run}

    def _look_at(self, run: Run) -> None:
        orphans = self._orphans(run) if run.status else set()
        was_alone, run.is_alone = run.is_alone, bool(run.status) and not orphans
        if run.is_alone:
            # Twice, because /proc may leave out a process while others of the list end.
            if was_alone:
                self._end(run)
        elif time.monotonic() > run.deadline_s:
            left = [described(each) for pid in orphans or {run.pid} for each in tree(pid)]
            left.sort(key=lambda line: ":Z:" in line)
            run.evidence += "\n".join(left[:MAX_DESCRIBED]) + "\n"
            run.status = f"{run.status}, and leaves processes" if orphans else "hangs"
            os.kill(run.pid, signal.SIGKILL)
            # From then on its children are this process's.
            os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
            _kill(lambda: self._orphans(run))
            self._end(run)

    def _end(self, run: Run) -> None:
        os.waitpid(run.pid, 0)
        del self._runs[run.pid]
        stdout, stderr = (_end_of(run.folder / name) for name in ("stdout", "stderr"))
        shutil.rmtree(run.folder)
        lines = dict.fromkeys(line for line in stdout.splitlines() if line)
        told = {NUMBER.sub("N", each[0]) for each in _telling(stderr)}
        said = run.orphans + "; ".join([*lines, *sorted(told)])
        if (
            run.status == "SIGSEGV"
            or "Fatal Python error" in said
            or (run.status == "SIGABRT" and not run.may_abort)
        ):
            # How, and what is said before, is chance: it may crash again while it is reported.
            run.evidence += f"ended by {run.status}\n"
            run.status, said = "crash", ""
        run.ended(Outcome(run.status, said, f"{run.evidence}{stderr}"))


def _kill(roots: Callable[[], set[int]]) -> None:
    """Ends these children of this process and all below them. Those that lose their parent become
    children, too."""
    while pids := roots():
        for pid in {each for root in pids for each in tree(root)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


def _telling(stderr: str) -> Iterator[re.Match[str]]:
    kept = IGNORED.sub(lambda found: found[0] if "/headway/" in found[0] else "", stderr)
    for line in kept.splitlines():
        if found := TELLING.match(line):
            yield found


def _end_of(file: Path) -> str:
    with open(file, "rb") as content:
        content.seek(max(0, os.fstat(content.fileno()).st_size - MAX_OUTPUT_BYTES))
        return content.read().decode(errors="replace")


def _status(found: os.waitid_result) -> str:
    if found.si_code == os.CLD_EXITED:
        return f"exit {found.si_status}"
    return signal.Signals(found.si_status).name


def version(python: Path) -> str:
    """Of an interpreter that has Headway. Raises ValueError."""
    code = "import sys, sysconfig, headway._native; print(sys.version.split()[0].rstrip('+') +"
    code += " 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"{python}: {error.strerror}") from None
    if done.returncode:
        raise ValueError(f"{python} has no Headway: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()
