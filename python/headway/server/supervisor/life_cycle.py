"""The life cycle of processes: the rules by which they start, replace each other and end.

- The server announces nothing before every process of every group has imported its application. If
  a process cannot import it at the first start, the server ends with that error. A process that a
  signal ends during the first start (such as SIGKILL from the OOM killer) is restarted like one
  that served.
- A process that has to be replaced (a limit, SIGHUP) serves until its successor is ready. Then it
  retires: it answers the requests on connections that it has accepted. All processes share the
  listening sockets, so no connection is refused or reset in between.
- A process that died is restarted, at first immediately, then with growing delays.
- At shutdown, no new connection enters the accept queues; then the workers empty the queues.

Callers report events to this module; it does not wait for them. It does not know the messages, the
server's own signals, or the source of the configuration. Only the supervisor's single thread uses
it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

from headway.errors import CommandError, reason_of
from headway.server import identity
from headway.server.settings import ProcessGroup, ServerSettings
from headway.server.stderr import say
from headway.server.supervisor.children import Children
from headway.server.supervisor.deaths import Deaths
from headway.server.supervisor.exit_reports import ExitReports
from headway.server.supervisor.generation import Generation, RunningGroup, Slot
from headway.server.supervisor.launch import Launch
from headway.server.supervisor.listeners import Listeners
from headway.server.supervisor.process import End, Failure, Process, State, name_of
from headway.server.supervisor.service_manager import ServiceManager
from headway.server.system import System


class LifeCycle:
    """Modifies the generations and the states of processes."""

    def __init__(
        self,
        listeners: Listeners,
        children: Children,
        service_manager: ServiceManager,
        system: System,
    ) -> None:
        self._system = system
        self._listeners = listeners
        self._children = children
        self._service_manager = service_manager
        self._launch = Launch(listeners, children, system)
        self.current: Generation | None = None
        # Becomes the current generation when all its processes are ready.
        self.pending: Generation | None = None
        self._generations = 0
        self._exit_reports = ExitReports(system.monotonic)
        # Keyed by the name of the group, for all generations together.
        self.deaths: dict[str, Deaths] = {}
        self.is_stopping = False
        # Why the server cannot start; `None` unless its first start failed.
        self.fatal: Failure | None = None
        # Whether a process ended during shutdown before its requests were finished.
        self.was_cut_off = False
        self._warned: set[str] = set()

    def is_wanted(self) -> bool:
        """Whether processes are still to serve: the server neither stops nor failed to start."""
        return not self.is_stopping and self.fatal is None

    def deadlines(self) -> Iterator[float]:
        """The times, by the system's clock, at which `tend` has something to do."""
        for process in self._children:
            if process.deadline is not None:
                yield process.deadline
            if process.stopped_until is not None:
                yield process.stopped_until
        if self.is_wanted():
            for _, _, slot in self._slots_to_retry():
                yield slot.retry_at or 0.0
        if self._exit_reports.retry_at is not None:
            yield self._exit_reports.retry_at

    def _slots_to_retry(self) -> Iterator[tuple[Generation, RunningGroup, Slot]]:
        """The slots in which a process is to start at `retry_at`."""
        for generation in (self.pending, self.current):
            if generation is not None:
                for running, slot in list(generation.slots()):
                    if slot.retry_at is not None:
                        yield generation, running, slot

    # Starting

    def begin(self, settings: ServerSettings, reason: str = "graceful_signal") -> int:
        """Starts a generation, which becomes the current one when it is ready, and returns its
        number. It replaces a pending generation that is not ready yet. `reason` is why the
        processes of the current generation will end. If it raises `CommandError`, nothing has
        changed."""
        for group in settings.groups:
            if group.preload:
                self._adopt_orphans(group)
        self._listeners.open(settings.groups)
        self._generations += 1
        abandoned, self.pending = self.pending, Generation(self._generations, settings, reason)
        if abandoned is not None:
            self._dismiss(abandoned, "generation_abandoned")
            former = [] if self.current is None else self.current.settings.groups
            self._listeners.drop_others([*former, *settings.groups])
        for running, slot in list(self.pending.slots()):
            if self.pending is not None:
                self._start(self.pending, running, slot)
        return self._generations

    def _adopt_orphans(self, group: ProcessGroup) -> None:
        try:
            self._system.adopt_orphans()
        except OSError as error:
            raise CommandError(
                f"process group {group.name!r}: --preload: the kernel does not make the supervisor "
                f"the parent of forked processes (PR_SET_CHILD_SUBREAPER: {reason_of(error)})",
                exit_code=2,
            ) from None

    def _start(self, generation: Generation, running: RunningGroup, slot: Slot) -> None:
        try:
            self._launch.fill(generation, running, slot)
        except OSError as error:
            name = f"process {slot.number} of group {slot.group.name}"
            what = f"{name} cannot be started: {reason_of(error)}"
            self._start_failed(generation, slot, what)

    def has_imported(self, process: Process) -> None:
        """Notes that the process is ready to serve, or to fork if it is a template."""
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
        """Makes the pending generation the current one and retires the former one."""
        former, self.current, self.pending = self.current, pending, None
        for running, slot in pending.slots():
            self._hand_over(running, slot)
        self._listeners.keep(pending.settings.groups)
        self._service_manager.is_ready()
        if former is None:
            self._announce(pending)
        else:
            self._dismiss(former, pending.reason)
            say(f"generation {pending.number} serves, {former.number} retires")
        self._warn(self._listeners.find_unused())
        self._warn(identity.find_root(pending.settings.groups))

    def _hand_over(self, running: RunningGroup, slot: Slot) -> None:
        """Lets the slot's ready process serve and retires the process that served before."""
        former, slot.serving, slot.starting = slot.serving, slot.starting, None
        assert slot.serving is not None
        slot.serving.enter(State.SERVING, running.restart_after_s())
        slot.serving.tell("serve")
        if former is not None:
            self._retire(former)

    def _announce(self, generation: Generation) -> None:
        groups = generation.settings.groups
        for group in groups:
            who = f"group {group.name} is " if len(groups) > 1 else ""
            scheme = "https" if group.tls else "http"
            for _, address in self._listeners.of(group):
                where = address if address.path is not None else f"{scheme}://{address}"
                say(f"{who}listening on {where}")

    def _warn(self, warnings: Iterable[str]) -> None:
        """Logs each warning only once in the server's life."""
        for warning in warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                say(f"warning: {warning}")

    # Ending

    def replace(self, process: Process, reason: str, detail: str = "") -> None:
        """Starts a replacement for the process if it serves in the current generation."""
        place = self.current.place_of(process) if self.current is not None else None
        if place is None or not self.is_wanted() or place[1].serving is not process:
            return
        running, slot = place
        process.deadline = None
        if not process.reason:
            process.reason, process.detail = reason, detail
            told = f"{reason}: {detail}" if detail else reason
            say(f"{process} is replaced ({told})")
        if reason == "deadlock_timeout":
            # A deadlocked process neither answers requests nor reads commands, so the slot does
            # not wait for it.
            slot.serving = None
            process.enter(State.STOPPING, process.group.shutdown_timeout_s)
            process.signal(signal.SIGTERM)
        if slot.starting is None and slot.retry_at is None and not slot.awaits_template:
            assert self.current is not None
            self._start(self.current, running, slot)

    def note_stop(self, process: Process, number: int | None) -> None:
        """Notes that signal `number` stopped the process, or that it continued (`None`)."""
        if number is not None:
            say(f"{process} is stopped by {name_of(number)}")
        elif process.stopped_by is not None:
            say(f"{process} goes on")
        process.note_stop(number)

    def _end_stopped(self, process: Process) -> None:
        """Replaces or kills a process that has been stopped for `deadlock_timeout_s`."""
        process.stopped_until = None
        detail = f"stopped for {process.group.deadlock_timeout_s:g} s"
        if process.state is State.SERVING:
            self.replace(process, "deadlock_timeout", detail)
        elif process.state in (State.STARTING, State.READY):
            say(f"{process} is killed (deadlock_timeout: {detail})")
            process.reason = process.reason or "deadlock_timeout"
            process.signal(signal.SIGKILL)

    def _retire(self, process: Process) -> None:
        process.enter(State.RETIRING, process.group.grace_s)
        reason = {"reason": process.reason, "detail": process.detail} if process.reason else {}
        if not process.tell("retire", **reason):
            process.signal(signal.SIGTERM)

    def _terminate(self, process: Process) -> None:
        """Sends SIGTERM and sets the time limit for the end: the grace period if the process
        serves or retires, else the shutdown timeout."""
        serves = process.state in (State.SERVING, State.RETIRING)
        timeout_s = process.group.grace_s if serves else process.group.shutdown_timeout_s
        process.enter(State.STOPPING, timeout_s)
        process.signal(signal.SIGTERM)

    def _dismiss(self, generation: Generation, reason: str) -> None:
        """Ends the processes of a generation that is no longer current or pending."""
        for running, slot in generation.slots():
            for process in (slot.serving, slot.starting, running.template):
                if process is None or process.state in (State.RETIRING, State.STOPPING):
                    continue
                process.reason = process.reason or reason
                if process.state is State.SERVING:
                    self._retire(process)
                else:
                    self._terminate(process)

    def stop(self) -> None:
        """Begins the shutdown: admits no new connections, and lets every process answer the
        requests that it has."""
        self.is_stopping = True
        self._service_manager.stops()
        self._listeners.stop_queueing()
        for process in self._children:
            process.reason = process.reason or "shutdown_signal"
            self._terminate(process)

    # When a process has ended

    def forget(self, process: Process, end: End | None) -> None:
        """Handles the end of a process. `end` is `None` if its wait status is unknown."""
        if not self._children.remove(process):
            return
        self._exit_reports.tell(process, end, process.requests)
        how = _how(end)
        reason = process.reason or (end.reason if end is not None else "unknown")
        if process.serving_since is not None and end is not None and end.exit_code != 0:
            self.was_cut_off |= self.is_stopping and not process.was_killed
            if process.state is not State.SERVING and not process.was_killed:
                reason = end.reason
                doing = "retired" if process.state is State.RETIRING else "stopped"
                say(f"{process} {how} while it {doing}")
        self.deaths.setdefault(process.group.name, Deaths()).count(reason, process.pid)
        for generation in (self.pending, self.current):
            if generation is None:
                continue
            running = generation.group_of(process)
            if running is not None:
                self._template_ended(generation, running, process, end)
            elif (place := generation.place_of(process)) is not None:
                self._worker_ended(generation, place[1], process, end)

    def _worker_ended(
        self, generation: Generation, slot: Slot, process: Process, end: End | None
    ) -> None:
        how = _how(end)
        if slot.serving is process:
            slot.serving = None
            if not self.is_wanted():
                return
            now = self._system.monotonic()
            delay_s = slot.count_death(process, now)
            if slot.starting is None and slot.retry_at is None:
                slot.retry_at = now + delay_s
            say(f"{process} {how} while it served; {_again(delay_s, slot)}")
            return
        slot.starting = None
        what = f"{process} {how} before it could serve"
        self._start_failed(generation, slot, what, process, end)

    def _template_ended(
        self, generation: Generation, running: RunningGroup, process: Process, end: End | None
    ) -> None:
        how = _how(end)
        running.template = None
        waiting = [slot for slot in running.slots if slot.awaits_template]
        for slot in waiting:
            slot.awaits_template = False
        for slot in waiting[:1]:
            what = f"{process} {how} before it could fork"
            self._start_failed(generation, slot, what, process, end)
        for slot in waiting[1:]:
            slot.retry_at = waiting[0].retry_at
        if not waiting and self.is_wanted():
            say(f"{process} {how}; the next fork needs a new one")

    def _start_failed(
        self,
        generation: Generation,
        slot: Slot,
        what: str,
        process: Process | None = None,
        end: End | None = None,
    ) -> None:
        """Handles a start that failed. `process` is `None` if the system could not start one. `end`
        is `None` for a forked process whose wait status is unknown. Even in the first generation,
        a process is restarted unless it reported a failure or exited by itself."""
        if not self.is_wanted():
            return
        failure = process.failure if process is not None else None
        if failure is not None and failure.details:
            say(failure.details)
        message = failure.message if failure is not None else what
        is_first = generation is self.pending and self.current is None
        exited = end is not None and end.signal_number is None
        was_killed = process is not None and failure is None and not exited
        if generation is self.pending and not (is_first and was_killed):
            self.pending = None
            self._dismiss(generation, "generation_abandoned")
            if self.current is None:
                self.fatal = failure or Failure(1, what, "")
                return
            self._listeners.fall_back(self.current.settings.groups)
            say(f"{message}; generation {self.current.number} goes on serving")
            self._service_manager.is_ready()
            return
        now = self._system.monotonic()
        delay_s = slot.count_death(process, now) if process is not None else 1.0
        slot.retry_at = now + delay_s
        waits = "; no request is answered before all processes have started" if is_first else ""
        say(f"{message}; {_again(delay_s, slot)}{waits}")

    # Deadlines

    def tend(self) -> None:
        """Acts on deadlines that have passed."""
        now = self._system.monotonic()
        if (retry_at := self._exit_reports.retry_at) is not None and retry_at <= now:
            self._exit_reports.send()
        for process in self._children:
            if process.control.fileno() < 0 and not process.pid:
                # A forked process that ended before it could report its pid.
                self.forget(process, None)
            elif process.deadline is not None and process.deadline <= now:
                process.deadline = None
                self._is_past_deadline(process)
            elif process.stopped_until is not None and process.stopped_until <= now:
                self._end_stopped(process)
        if not self.is_wanted() and all(each.has_closed for each in self._children):
            self._listeners.shut_down()
        for generation, running, slot in self._slots_to_retry():
            # A failed start may abandon the generation or make the failure fatal.
            is_kept = generation in (self.pending, self.current)
            is_due = slot.retry_at is not None and slot.retry_at <= now
            if is_due and is_kept and self.is_wanted():
                self._start(generation, running, slot)

    def _is_past_deadline(self, process: Process) -> None:
        """Acts on a process that exceeded the time limit of its current state."""
        if process.state is State.SERVING:
            self.replace(process, "restart_interval")
        elif process.state is State.STARTING:
            process.reason = "startup_timeout"
            limit_s = process.group.startup_timeout_s
            text = f"{process} did not import its application in {limit_s:g} s (startup-timeout)"
            process.failure = process.failure or Failure(1, text, "")
            process.signal(signal.SIGKILL)
        else:
            say(f"{process} does not end, and is killed")
            process.was_killed = True
            self.was_cut_off |= self.is_stopping and process.serving_since is not None
            process.signal(signal.SIGKILL)


def _how(end: End | None) -> str:
    return str(end) if end is not None else "ended"


def _again(delay_s: float, slot: Slot) -> str:
    if slot.starting is not None:
        return "another is starting"
    if slot.failures <= 1:
        return "starting another"
    return f"{slot.failures} times in a row, so another starts in {delay_s:g} s"
