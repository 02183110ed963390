"""The supervisor: opens the listening sockets, starts worker processes, and decides who serves.

It never imports the application, and nothing that a worker does can end it. One thread, which
waits for signals, for what workers say, and for the next deadline; never for anything else. The
rules:

- Nothing is announced before every process of every group has imported its application; if one
  cannot, at the first start, the server ends with that error.
- A process that has to go (a limit, SIGHUP) goes when another is ready in its place; then it
  retires: it answers what it has, on connections that it has accepted. All share the listening
  sockets, so no connection is refused or reset in between.
- A process that died is started again, at once at first, then later and later.
- At the end no new connection gets into the accept queues, then the workers empty them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from headway import _native
from headway.errors import CommandError, Error, reason_of
from headway.server import identity
from headway.server.control import Message
from headway.server.deaths import Deaths
from headway.server.generation import Generation, RunningGroup, Slot
from headway.server.listeners import Listeners, inherited_from_systemd
from headway.server.process import (
    End,
    Failure,
    Process,
    State,
    check_interpreter,
    fork,
    is_child,
    spawn,
)
from headway.server.service_manager import ServiceManager
from headway.server.settings import ServerSettings
from headway.server.signals import Signals
from headway.server.status import StatusSocket, draw, of_deaths, of_process
from headway.server.task import Task
from headway.server.watching import Watcher

# What a worker may take beyond its own graceful timeout to notice that it is over.
MARGIN_S = 2.0


def supervise(
    settings: ServerSettings,
    reread: Callable[[], ServerSettings],
    configuration_files: Sequence[str] = (),
) -> int:
    """Serves until a signal comes; returns the exit status. `reread` is called on SIGHUP, and may
    raise `Error`; with `settings.reload` also when one of the files changes. Raises `CommandError`
    if serving cannot begin."""
    inherited = inherited_from_systemd()
    with Signals() as signals, ExitStack() as stack:
        watcher = None
        if settings.reload:
            watcher = stack.enter_context(closing(Watcher(configuration_files)))
        status_socket = None
        if settings.status_socket is not None:
            status_socket = stack.enter_context(closing(StatusSocket(settings.status_socket)))
        if settings.pid_file is not None:
            stack.enter_context(pid_file(settings.pid_file))
        listeners = Listeners(inherited)
        supervisor = Supervisor(settings, reread, listeners, signals, watcher, status_socket)
        status = supervisor.run()
    if supervisor.ended_by is not None:
        # As if there had been no handler, now that nothing is left behind.
        signal.signal(supervisor.ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), supervisor.ended_by)
    return status


def say(text: str) -> None:
    """To the log, which is stderr; a log that is gone is no reason to stop serving."""
    with contextlib.suppress(OSError, ValueError):
        print(f"headway serve: {text}", file=sys.stderr, flush=True)


class Supervisor:
    def __init__(
        self,
        settings: ServerSettings,
        reread: Callable[[], ServerSettings],
        listeners: Listeners,
        signals: Signals,
        watcher: Watcher | None,
        status_socket: StatusSocket | None,
    ) -> None:
        self.settings = settings
        self._reread = reread
        self._signals = signals
        self._watcher = watcher
        self._status_socket = status_socket
        self._service_manager = ServiceManager()
        self._since = time.time()
        self._listeners = listeners
        # All that were started and not waited for, whichever generation they belong to.
        self.processes: list[Process] = []
        self.current: Generation | None = None
        # Will become the current one when all of it is ready.
        self.pending: Generation | None = None
        self._generations = 0
        self.deaths: dict[str, Deaths] = {}
        # Wait statuses of processes that did not say yet that they are ours.
        self._unclaimed: dict[int, int] = {}
        self.stopping_since: float | None = None
        # The second signal, which let nobody finish.
        self.ended_by: signal.Signals | None = None
        # Set if the server cannot begin.
        self._fatal: Failure | None = None
        self._was_cut_off = False
        self._has_warned_of_root = False

    def run(self) -> int:
        try:
            self._begin(self.settings)
            while self.processes or self._is_wanted():
                self._wait()
                self._reap()
                self._tend()
        finally:
            self._kill_all()
            self._listeners.shut_down()
        if self._fatal is not None:
            raise CommandError(self._fatal.message, self._fatal.exit_code)
        return 1 if self._was_cut_off else 0

    def _is_wanted(self) -> bool:
        return self.stopping_since is None and self._fatal is None

    # What happens

    def _wait(self) -> None:
        """Waits until something happens, and acts on what was said."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        by_fd = {each.control.fileno(): each for each in self.processes}
        by_fd.pop(-1, None)
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        for source in (self._watcher, self._status_socket):
            if source is not None:
                poll.register(source, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(self._patience_ms())]
        for fd in ready:
            if fd in by_fd:
                self._hear(by_fd[fd])
        if self._status_socket is not None and self._status_socket.fileno() in ready:
            self._status_socket.answer(self._describe())
        if self._watcher is not None and (changed := self._watcher.changed()) is not None:
            self._reload(f"{changed} has changed")
        for number in self._signals.read():
            self._obey(signal.Signals(number))

    def _patience_ms(self) -> float | None:
        times = [self._service_manager.ping_at, *(each.deadline for each in self.processes)]
        if self.current is not None and self._is_wanted():
            times += [slot.retry_at for _, slot in self.current.slots()]
        known = [each for each in times if each is not None]
        # A millisecond late rather than early, and then again.
        return max(min(known) - time.monotonic(), 0.0) * 1000 + 1 if known else None

    def _obey(self, number: signal.Signals) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            if self.stopping_since is None:
                self._stop()
            else:
                self.ended_by = number
                self._kill_all()
        elif number == signal.SIGHUP and self._is_wanted():
            self._reload("SIGHUP")
        elif number == signal.SIGUSR1:
            say(f"SIGUSR1:\n{draw(self._describe())}")

    def _hear(self, process: Process) -> None:
        for message in process.receive():
            # What comes from a process may come from its application.
            with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                self._act_on(process, message)

    def _act_on(self, process: Process, message: Message) -> None:
        event = message.get("event")
        if event == "started" and not process.pid:
            self._claim(process, int(message["pid"]))
        elif event == "ready" and process.state is State.STARTING:
            self._is_ready(process)
        elif event == "failed":
            process.failure = Failure(
                int(message["exit_code"]), str(message["message"]), str(message["details"])
            )
        elif event == "limit":
            self._replace(process, str(message["reason"]), str(message.get("detail", "")))
        elif event == "files" and self._watcher is not None:
            self._watcher.add(map(str, message["paths"]))
        elif event == "closed":
            process.has_closed = True
        elif event == "stopped":
            process.enter(State.STOPPING, process.group.shutdown_timeout_s)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                process = next((each for each in self.processes if each.pid == pid), None)
                if process is None:
                    # Else an orphan that an application left, and the pid may come again.
                    if any(not each.pid for each in self.processes):
                        self._unclaimed[pid] = status
                else:
                    self._hear(process)
                    self._forget(process, End.from_status(status))

    def _claim(self, process: Process, pid: int) -> None:
        status = self._unclaimed.pop(pid, None)
        if status is None and not is_child(pid):
            # No worker, but its application at work between the two forks.
            return
        process.pid = pid
        if all(each.pid for each in self.processes):
            self._unclaimed.clear()
        if status is not None:
            self._forget(process, End.from_status(status))
        elif process.state is State.STOPPING:
            process.signal(signal.SIGTERM)

    # Starting

    def _begin(self, settings: ServerSettings) -> None:
        """Starts a generation, which becomes the current one when it is ready."""
        for group in settings.groups:
            check_interpreter(group)
            if group.preload:
                _native.process_adopt_orphans()
        self._listeners.open(settings.groups)
        self._generations += 1
        self.pending = Generation(self._generations, settings)
        for running, slot in list(self.pending.slots()):
            if self.pending is not None:
                self._start(self.pending, running, slot)

    def _start(self, generation: Generation, running: RunningGroup, slot: Slot) -> None:
        slot.retry_at = None
        group = running.group
        try:
            if not group.preload:
                slot.starting = self._spawn(generation, running, slot.number)
                return
            if running.template is None:
                running.template = self._spawn(generation, running, 0)
            if running.template.state is State.STARTING:
                slot.awaits_template = True
            else:
                slot.awaits_template = False
                slot.starting = fork(running.template, slot.number)
                slot.starting.enter(State.STARTING, group.startup_timeout_s)
                self.processes.append(slot.starting)
        except OSError as error:
            reason = reason_of(error)
            name = f"process {slot.number} of group {group.name}"
            self._start_failed(generation, slot, f"{name} cannot be started: {reason}")

    def _spawn(self, generation: Generation, running: RunningGroup, number: int) -> Process:
        """`number` 0 is the group's template."""
        group = running.group
        task = Task(
            group=group,
            number=number,
            listeners=tuple(
                (each.socket.fileno(), str(each.address)) for each in self._listeners.of(group)
            ),
            multiprocess=group.processes > 1 or group.multiprocess,
            labelled=sum(each.group.processes for each in generation.groups) > 1,
            watched=generation.settings.reload,
            is_template=number == 0,
        )
        environment = identity.environment(group, dict(os.environ))
        process = spawn(task, number, generation.number, environment)
        process.enter(State.STARTING, group.startup_timeout_s)
        self.processes.append(process)
        return process

    def _is_ready(self, process: Process) -> None:
        process.enter(State.READY)
        for generation in (self.pending, self.current):
            if generation is None:
                continue
            running = generation.group_of(process)
            if running is not None:
                for slot in running.slots:
                    if slot.awaits_template:
                        self._start(generation, running, slot)
                return
        if self.pending is not None and self.pending.place_of(process):
            if self.pending.is_ready():
                self._promote(self.pending)
        elif self.current is not None and (place := self.current.place_of(process)):
            self._hand_over(*place)

    def _promote(self, pending: Generation) -> None:
        """The pending generation serves from now on; the one before retires."""
        former, self.current, self.pending = self.current, pending, None
        for running, slot in pending.slots():
            self._hand_over(running, slot)
        wanted = {address for group in pending.settings.groups for address in group.binds}
        dropped = self._listeners.addresses() - wanted
        self._listeners.stop_queueing(dropped)
        self._listeners.close(dropped)
        self._service_manager.is_ready()
        warning = identity.find_root(pending.settings.groups)
        if former is None:
            self._announce(pending)
        else:
            self._dismiss(former, "graceful_signal")
            say(f"generation {pending.number} serves, {former.number} retires")
        if warning and not self._has_warned_of_root:
            self._has_warned_of_root = True
            say(f"warning: {warning}")

    def _hand_over(self, running: RunningGroup, slot: Slot) -> None:
        """Whoever is ready serves; who served before retires."""
        former, slot.serving, slot.starting = slot.serving, slot.starting, None
        assert slot.serving is not None
        slot.serving.enter(State.SERVING, running.restart_after_s())
        slot.serving.tell("serve")
        if former is not None:
            self._retire(former)

    def _announce(self, generation: Generation) -> None:
        for group in generation.settings.groups:
            scheme = "https" if group.tls else "http"
            for _, address in self._listeners.of(group):
                where = address if address.path is not None else f"{scheme}://{address}"
                say(f"listening on {where}")

    # Ending

    def _replace(self, process: Process, reason: str, detail: str) -> None:
        """Another process is to take the place of this one, which serves."""
        place = self.current.place_of(process) if self.current is not None else None
        if place is None or not self._is_wanted() or place[1].serving is not process:
            return
        running, slot = place
        process.deadline = None
        if not process.reason:
            process.reason = reason
            told = f"{reason}: {detail}" if detail else reason
            say(f"{process} is replaced ({told})")
        if reason == "deadlock_timeout":
            # It answers nobody, and cannot hear; nothing to wait for.
            slot.serving = None
            process.enter(State.STOPPING, process.group.shutdown_timeout_s)
            process.signal(signal.SIGTERM)
        if slot.starting is None and slot.retry_at is None and not slot.awaits_template:
            assert self.current is not None
            self._start(self.current, running, slot)

    def _retire(self, process: Process) -> None:
        process.enter(State.RETIRING, self._grace_s(process))
        if not process.tell("retire"):
            process.signal(signal.SIGTERM)

    def _terminate(self, process: Process) -> None:
        """SIGTERM, with as much time as the process has use for."""
        serves = process.state in (State.SERVING, State.RETIRING)
        timeout_s = self._grace_s(process) if serves else process.group.shutdown_timeout_s
        process.enter(State.STOPPING, timeout_s)
        process.signal(signal.SIGTERM)

    def _grace_s(self, process: Process) -> float:
        """Until SIGKILL; 0 for never."""
        group = process.group
        if not group.graceful_timeout_s or not group.shutdown_timeout_s:
            return 0.0
        return group.graceful_timeout_s + group.shutdown_timeout_s + MARGIN_S

    def _dismiss(self, generation: Generation, reason: str) -> None:
        """Ends the processes of a generation that is no longer the current or the pending one."""
        for running, slot in generation.slots():
            for process in (slot.serving, slot.starting, running.template):
                if process is None or process.state in (State.RETIRING, State.STOPPING):
                    continue
                process.reason = process.reason or reason
                if process.state is State.SERVING:
                    self._retire(process)
                else:
                    self._terminate(process)

    def _forget(self, process: Process, end: End | None) -> None:
        """The process has ended. `None`: nobody knows how."""
        if process not in self.processes:
            return
        self.processes.remove(process)
        process.control.close()
        how = str(end) if end is not None else "ended"
        self._was_cut_off |= process.was_killed or (
            process.serving_since is not None
            and process.state is State.STOPPING
            and end is not None
            and end.exit_code not in (0, None)
        )
        reason = process.reason or (end.reason if end is not None else "unknown")
        self._deaths_of(process).count(reason, process.pid)
        for generation in (self.pending, self.current):
            if generation is None:
                continue
            running = generation.group_of(process)
            if running is not None:
                self._template_ended(generation, running, process, how)
            elif (place := generation.place_of(process)) is not None:
                self._worker_ended(generation, place[1], process, how)

    def _worker_ended(self, generation: Generation, slot: Slot, process: Process, how: str) -> None:
        if slot.serving is process:
            slot.serving = None
            if not self._is_wanted():
                return
            delay_s = slot.count_death(process)
            if slot.starting is None and slot.retry_at is None:
                slot.retry_at = time.monotonic() + delay_s
            say(f"{process} {how} while it served; {_again(delay_s, slot)}")
            return
        slot.starting = None
        self._start_failed(generation, slot, f"{process} {how} before it could serve", process)

    def _template_ended(
        self, generation: Generation, running: RunningGroup, process: Process, how: str
    ) -> None:
        running.template = None
        waiting = [slot for slot in running.slots if slot.awaits_template]
        for slot in waiting:
            slot.awaits_template = False
        for slot in waiting[:1]:
            self._start_failed(generation, slot, f"{process} {how} before it could fork", process)
        for slot in waiting[1:]:
            slot.retry_at = waiting[0].retry_at
        if not waiting and self._is_wanted():
            say(f"{process} {how}; the next fork needs a new one")

    def _start_failed(
        self, generation: Generation, slot: Slot, what: str, process: Process | None = None
    ) -> None:
        if not self._is_wanted():
            return
        failure = process.failure if process is not None else None
        message = failure.message if failure is not None else what
        if failure is not None and failure.details:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(failure.details)
        if generation is self.pending:
            self.pending = None
            self._dismiss(generation, "generation_abandoned")
            if self.current is None:
                self._fatal = failure or Failure(1, what, "")
                return
            wanted = {a for group in self.current.settings.groups for a in group.binds}
            self._listeners.close(self._listeners.addresses() - wanted)
            say(f"{message}; generation {self.current.number} goes on serving")
            self._service_manager.is_ready()
            return
        delay_s = slot.count_death(process) if process is not None else 1.0
        slot.retry_at = time.monotonic() + delay_s
        say(f"{message}; {_again(delay_s, slot)}")

    def _deaths_of(self, process: Process) -> Deaths:
        return self.deaths.setdefault(process.group.name, Deaths())

    def _describe(self) -> dict[str, Any]:
        """What `headway status` shows; see `status`."""
        shown = self.current or self.pending
        groups = shown.settings.groups if shown is not None else ()
        state = "stopping" if not self._is_wanted() else "serving" if self.current else "starting"
        return {
            "pid": os.getpid(),
            "state": state,
            "since": self._since,
            "generation": shown.number if shown is not None else 0,
            "groups": [
                {
                    "name": group.name,
                    "addresses": [str(each) for each in self._listeners.addresses_of(group)],
                    "processes": [
                        of_process(each) for each in self.processes if each.group.name == group.name
                    ],
                    "deaths": of_deaths(self.deaths.get(group.name, Deaths())),
                }
                for group in groups
            ],
        }

    # What is due

    def _tend(self) -> None:
        self._service_manager.ping_if_due()
        now = time.monotonic()
        for process in list(self.processes):
            if process.control.fileno() < 0 and not process.pid:
                # Forked, and gone before it could say who it is.
                self._forget(process, None)
                continue
            if process.deadline is None or process.deadline > now:
                continue
            process.deadline = None
            if process.state is State.SERVING:
                self._replace(process, "restart_interval", "")
            elif process.state is State.STARTING:
                process.reason = "startup_timeout"
                limit_s = process.group.startup_timeout_s
                text = (
                    f"{process} did not import its application in {limit_s:g} s (startup-timeout)"
                )
                process.failure = process.failure or Failure(1, text, "")
                self._kill(process)
            else:
                say(f"{process} does not end, and is killed")
                process.was_killed = True
                self._kill(process)
        if not self._is_wanted() and all(each.has_closed for each in self.processes):
            self._listeners.shut_down()
        if self.current is not None and self._is_wanted():
            for running, slot in list(self.current.slots()):
                if slot.retry_at is not None and slot.retry_at <= now:
                    self._start(self.current, running, slot)

    def _kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)

    # Signals

    def _reload(self, cause: str) -> None:
        """Reads the configuration again and starts a generation for it."""
        if self.current is None:
            say(f"{cause}: not before the first start is done")
            return
        self._service_manager.reloads()
        try:
            settings = self._reread()
            abandoned, self.pending = self.pending, None
            if abandoned is not None:
                self._dismiss(abandoned, "generation_abandoned")
            self._begin(settings)
        except Exception as error:
            # Whatever is wrong with what comes next, what runs goes on.
            what = error if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            say(f"{cause}: {what}; generation {self.current.number} goes on serving")
            self._service_manager.is_ready()
            return
        say(f"{cause}: starting generation {self._generations}")

    def _stop(self) -> None:
        self.stopping_since = time.monotonic()
        self._service_manager.stops()
        self._listeners.stop_queueing(self._listeners.addresses())
        for process in self.processes:
            process.reason = process.reason or "shutdown_signal"
            self._terminate(process)

    def _kill_all(self) -> None:
        for process in self.processes:
            self._kill(process)
        for process in self.processes:
            if process.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, 0)
        self.processes.clear()


@contextlib.contextmanager
def pid_file(path: str) -> Iterator[None]:
    """Has the pid of this process in it for as long as the context lasts."""
    text = f"{os.getpid()}\n"
    try:
        Path(path).write_text(text)
    except OSError as error:
        reason = reason_of(error)
        raise CommandError(f"--pid-file {path}: {reason}", exit_code=2) from None
    try:
        yield
    finally:
        # Not that of a server that was started since.
        with contextlib.suppress(OSError):
            if Path(path).read_text() == text:
                Path(path).unlink()


def _again(delay_s: float, slot: Slot) -> str:
    if slot.starting is not None:
        return "another is starting"
    if slot.failures <= 1:
        return "starting another"
    return f"{slot.failures} times in a row, so another starts in {delay_s:g} s"
