"""The supervisor: the event loop that receives signals, messages of processes, connections to the
status socket and changes of files, and passes them to `LifeCycle`.

It never imports the application, and no worker can end it. Its main thread waits in poll() for one
of these events or the next deadline, and for nothing else: another thread reads the configuration
(`reading`), children ask the Pythons of `python-home` (`interpreter_check`), and a log that nobody
reads loses messages (`stderr`). There are three exceptions: the start of the recorder of
`--dashboard`, a wait that each signal ends; look-ups of hosts and users for sockets that a
generation opens, which its reading has done just before; and, with `--reload`, the states of files
that processes have imported.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from headway.errors import CommandError, Error
from headway.server import free_threading
from headway.server.poll_timeout import poll_timeout_ms
from headway.server.settings import ServerSettings
from headway.server.signals import ENDING, IGNORED, ONE_SIGNAL_S, WATCHED, Signals
from headway.server.stderr import say
from headway.server.supervisor import messages
from headway.server.supervisor.children import Children
from headway.server.supervisor.deaths import Deaths
from headway.server.supervisor.error_log import ErrorLog
from headway.server.supervisor.interpreter_check import InterpreterCheck
from headway.server.supervisor.life_cycle import LifeCycle
from headway.server.supervisor.listeners import Listeners
from headway.server.supervisor.pid_file import pid_file
from headway.server.supervisor.process import Failure, Process, State
from headway.server.supervisor.reading import Reading
from headway.server.supervisor.service_manager import ServiceManager
from headway.server.supervisor.status import StatusSocket, draw, of_deaths, of_process
from headway.server.supervisor.status_document import Status
from headway.server.supervisor.status_request import StatusRequest
from headway.server.supervisor.tuning import Tuning
from headway.server.supervisor.watching import Watcher
from headway.server.system import System

if TYPE_CHECKING:
    from headway.server.supervisor.dashboard import Dashboard

# How many undeclared modules are kept for each process.
MAX_MODULES = 500


def supervise(
    settings: ServerSettings,
    reread: Callable[[], ServerSettings],
    configuration_files: Collection[str] = (),
    inherited: Sequence[socket.socket] = (),
) -> int:
    """Serves until a signal ends it and returns the exit status. SIGHUP has another thread call
    `reread`, which may raise `Error`; with `settings.reload`, so does a change of one of
    `configuration_files`, to which `reread` may add files. `inherited` are the sockets that a
    service manager opened. Raises `CommandError` if serving cannot begin."""
    listeners = Listeners(inherited)
    system = System()
    with Signals(WATCHED, IGNORED, ENDING) as signals, ExitStack() as stack:
        if settings.error_log is not None:
            reread = stack.enter_context(ErrorLog(settings.error_log)).opened_anew(reread)
        watcher = None
        if settings.reload:
            watcher = stack.enter_context(closing(Watcher(configuration_files)))

        def read_again() -> ServerSettings:
            try:
                with free_threading.asking_nobody():
                    return reread()
            finally:
                if watcher is not None:
                    watcher.add(configuration_files)

        status_socket = None
        if settings.status_socket is not None:
            status_socket = stack.enter_context(closing(StatusSocket(settings.status_socket)))
        if settings.pid_file is not None:
            # The pid file must not be written before the addresses are bound.
            stack.callback(listeners.shut_down)
            listeners.open(settings.groups)
            stack.enter_context(pid_file(settings.pid_file))
        dashboard = None
        if settings.dashboard:
            from headway.server.supervisor.dashboard import Dashboard

            dashboard = Dashboard(
                settings.dashboard_http, settings.dashboard_store, settings.telemetry, system
            )
            stack.callback(dashboard.close)
        supervisor = Supervisor(
            read_again, listeners, signals, watcher, status_socket, dashboard, system
        )
        status = supervisor.run(settings)
    if supervisor.ended_by is not None:
        # Ends by the signal's default action, now that everything is cleaned up.
        signal.signal(supervisor.ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), supervisor.ended_by)
    return status


class Upcoming:
    """A generation that begins when its configuration has been read and the Pythons of its groups
    have been asked. `cause` is "" for the first one. `settings` are `None` until they are read."""

    def __init__(self, cause: str, reason: str, settings: ServerSettings | None = None) -> None:
        self.cause = cause
        self.reason = reason
        self.settings = settings


class Supervisor:
    def __init__(
        self,
        reread: Callable[[], ServerSettings],
        listeners: Listeners,
        signals: Signals,
        watcher: Watcher | None,
        status_socket: StatusSocket | None,
        dashboard: Dashboard | None,
        system: System,
    ) -> None:
        self._reread = reread
        self._listeners = listeners
        self._signals = signals
        self._watcher = watcher
        self._status_socket = status_socket
        self._dashboard = dashboard
        self._system = system
        self._service_manager = ServiceManager(system.monotonic)
        self._since = time.time()
        self._children = Children(system)
        self._life_cycle = LifeCycle(listeners, self._children, self._service_manager, system)
        self._interpreters = InterpreterCheck(self._children, system)
        self._upcoming: Upcoming | None = None
        # One at a time: a reading that waits for something cannot be cancelled. It may be for an
        # earlier one than the upcoming generation.
        self._reading: Reading | None = None
        self._read_for: Upcoming | None = None
        self._status_request = StatusRequest(system.monotonic)
        self._tuning = Tuning(system.monotonic)
        # The signal that killed all processes at once: SIGQUIT, or a second SIGTERM or SIGINT.
        self.ended_by: signal.Signals | None = None
        self._stopped_at = 0.0

    def run(self, settings: ServerSettings) -> int:
        """Runs until no process is left and returns the exit status. Raises `CommandError`."""
        try:
            self.begin(settings)
            while not self.is_over():
                self.take_turn()
        finally:
            self.end()
        return self.exit_status()

    # The parts of `run`

    def begin(self, settings: ServerSettings) -> None:
        """Starts the first generation, as soon as the Pythons of its groups have been asked. Raises
        `CommandError`."""
        if self._dashboard is not None:
            self._dashboard.start()
            self._dashboard.wait_until_it_listens(self._signals)
        self._upcoming = Upcoming("", "graceful_signal", settings)
        self._tend_upcoming()

    def is_over(self) -> bool:
        return not (self._children or self._life_cycle.is_wanted())

    def take_turn(self) -> None:
        """Waits for the next event or deadline and acts on it. Raises `CommandError` if the first
        generation cannot begin."""
        self._wait()
        self._reap()
        self._service_manager.ping_if_due()
        self._tend_upcoming()
        self._life_cycle.tend()
        self._tuning.tend(self._children)
        if self._status_request.is_over():
            self._status_request.answer(self._describe())

    def end(self) -> None:
        """Kills the processes that are left, closes the sockets, and ends the recorder, which has
        all reports by now."""
        self._tuning.end("the server stops")
        self._drop_upcoming()
        self._forget_reading()
        self._children.kill()
        self._listeners.shut_down()
        if self._dashboard is not None:
            self._end_dashboard(self._dashboard)

    def _end_dashboard(self, dashboard: Dashboard) -> None:
        # Imported here because only a server with a dashboard has the module.
        from headway.server.supervisor.dashboard import AT_ONCE_TIMEOUT_S, STOP_TIMEOUT_S

        dashboard.stop(STOP_TIMEOUT_S if self.ended_by is None else AT_ONCE_TIMEOUT_S)
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        while dashboard.is_running:
            deadlines = () if dashboard.deadline is None else (dashboard.deadline,)
            self._system.poll(poll, poll_timeout_ms(deadlines, self._system.monotonic()))
            for number in self._signals.read():
                if number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                    self._obey(signal.Signals(number))
            dashboard.tend(is_stopping=True)

    def exit_status(self) -> int:
        """The exit status: 1 if the shutdown cut off requests, else 0. Raises `CommandError` if
        serving could not begin."""
        if (fatal := self._life_cycle.fatal) is not None:
            raise CommandError(fatal.message, fatal.exit_code)
        return 1 if self._life_cycle.was_cut_off else 0

    def _wait(self) -> None:
        """Waits for the next event or deadline and acts on the events."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        by_fd = {each.control.fileno(): each for each in self._children}
        by_fd.pop(-1, None)
        for fd in (*by_fd, *self._interpreters.fds()):
            poll.register(fd, select.POLLIN)
        if self._reading is not None:
            poll.register(self._reading, select.POLLIN)
        for source in (self._watcher, self._status_socket, self._tuning):
            if source is not None and source.fileno() >= 0:
                poll.register(source, select.POLLIN)
        patience = poll_timeout_ms(self._deadlines(), self._system.monotonic())
        ready = [fd for fd, _ in self._system.poll(poll, patience)]
        for fd in ready:
            if fd in by_fd:
                self._hear(by_fd[fd])
        self._interpreters.hear(ready)
        if self._status_socket is not None and self._status_socket.fileno() in ready:
            self._meet(self._status_socket)
        if self._tuning.fileno() in ready:
            self._tuning.hear_client(self._children)
        if self._watcher is not None and (changed := self._watcher.changed()) is not None:
            self._reload(f"{changed} has changed", "script_reload")
        for number in self._signals.read():
            self._obey(signal.Signals(number))

    def _deadlines(self) -> Iterator[float]:
        yield from self._life_cycle.deadlines()
        yield from self._interpreters.deadlines()
        if self._service_manager.ping_at is not None:
            yield self._service_manager.ping_at
        yield from self._tuning.deadlines()
        if self._status_request.deadline is not None:
            yield self._status_request.deadline
        if self._dashboard is not None and self._dashboard.deadline is not None:
            yield self._dashboard.deadline

    def _meet(self, status_socket: StatusSocket) -> None:
        """Accepts a client of the status socket."""
        client = status_socket.accept()
        if client is None:
            return
        if client.tunes:
            self._tuning.admit(client.socket)
        else:
            self._status_request.join(client.answer, self._children)

    # Messages from processes

    def _hear(self, process: Process) -> None:
        for event in process.receive():
            try:
                self._act_on(process, event)
            except CommandError:
                raise
            except Exception:
                # A defect of the supervisor: the event of one process must not end the others.
                met = traceback.format_exc().rstrip()
                say(f"{process}: an error in acting on its {type(event).__name__}\n{met}")

    def _act_on(self, process: Process, event: messages.Event) -> None:
        if isinstance(event, messages.Started):
            if not process.pid:
                self._claim(process, event.pid)
        elif isinstance(event, messages.Ready):
            if process.state is State.STARTING:
                self._tuning.note_ready(process, event.switch_interval_s)
                self._life_cycle.has_imported(process)
        elif isinstance(event, messages.Failed):
            process.failure = Failure(*event)
        elif isinstance(event, messages.Limit):
            self._life_cycle.replace(process, event.reason, event.detail)
        elif isinstance(event, messages.Files):
            if self._watcher is not None:
                self._watcher.add_imported(event.states)
        elif isinstance(event, messages.Gil):
            process.gil_enabled = event.enabled
            self._note_undeclared(process, event.undeclared)
        elif isinstance(event, messages.Requests):
            self._status_request.hear(process, event.requests, event.interpreters)
        elif isinstance(event, messages.Block):
            self._tuning.hear(process, event)
        elif isinstance(event, messages.Reporting):
            process.reports_since = event.started
        elif isinstance(event, messages.Reported):
            process.has_reported = True
        elif isinstance(event, messages.Closed):
            process.has_closed = True
        elif not process.has_stopped:
            # Only once: each time sets the limit for the end anew.
            process.has_stopped = True
            process.enter(State.STOPPING, process.group.shutdown_timeout_s)

    def _note_undeclared(self, process: Process, names: list[str]) -> None:
        """Logs each module only once for the processes of a group in a generation."""
        known = {
            name
            for each in self._children
            if each.group.name == process.group.name and each.generation == process.generation
            for name in each.undeclared
        }
        for name in names:
            if len(process.undeclared) >= MAX_MODULES or name in process.undeclared:
                continue
            if name not in known:
                say(
                    f"{process}: the module {name} does not declare that it can run without a "
                    "GIL, and runs without one (--free-threading)"
                )
            process.undeclared.append(name)

    def _claim(self, process: Process, pid: int) -> None:
        end = self._children.claim(process, pid)
        if end is not None:
            self._life_cycle.forget(process, end)
        elif process.state is State.STOPPING:
            # The SIGTERM was not sent before because the pid was unknown.
            process.signal(signal.SIGTERM)

    def _reported(self, settings: ServerSettings) -> ServerSettings:
        """The settings with what `headway tune` applied, and with the dashboard's telemetry socket
        if there is a dashboard."""
        settings = self._tuning.applied_to(settings)
        return settings if self._dashboard is None else self._dashboard.heard_by(settings)

    def _reap(self) -> None:
        if self._dashboard is not None:
            self._dashboard.tend(is_stopping=self._life_cycle.is_stopping)
        for process, number in self._children.stops():
            self._life_cycle.note_stop(process, number)
        for process, end in self._children.reap():
            # The messages that the process sent before it ended.
            self._hear(process)
            self._life_cycle.forget(process, end)

    # Signals and changed files

    def _obey(self, number: signal.Signals) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            if not self._life_cycle.is_stopping:
                self._life_cycle.stop()
                self._stopped_at = self._system.monotonic()
            elif self._system.monotonic() - self._stopped_at > ONE_SIGNAL_S:
                self._end_at_once(number)
        elif number == signal.SIGQUIT:
            self._end_at_once(number)
        elif number == signal.SIGHUP:
            self._reload("SIGHUP", "graceful_signal")
        elif number == signal.SIGUSR1:
            self._status_request.join(lambda it: say(f"SIGUSR1:\n{draw(it)}"), self._children)
        elif number == signal.SIGUSR2:
            say("SIGUSR2 has no meaning here; SIGHUP starts a new generation")

    def _end_at_once(self, number: signal.Signals) -> None:
        self.ended_by = number
        if not self._life_cycle.is_stopping:
            say(f"{number.name}: all processes are killed")
            self._life_cycle.stop()
        self._children.kill()
        if self._dashboard is not None:
            self._dashboard.kill()

    def _reload(self, cause: str, reason: str) -> None:
        """Reads the configuration again and starts a generation for it. The processes of the
        current generation end for `reason`. Without a current generation or during shutdown, the
        configuration is not read. Takes the place of a reading that is not done."""
        if not self._life_cycle.is_wanted():
            return
        if self._life_cycle.current is None:
            say(f"{cause}: not before the first start is done")
            return
        self._tuning.end(f"{cause}: the configuration is read again")
        self._service_manager.reloads()
        self._drop_upcoming()
        self._upcoming = Upcoming(cause, reason)
        self._tend_upcoming()

    def _tend_upcoming(self) -> None:
        """Begins the upcoming generation, if there is one, once its configuration has been read and
        its Pythons have answered."""
        if not self._life_cycle.is_wanted():
            self._drop_upcoming()
        upcoming = self._upcoming
        if upcoming is None:
            if self._reading is not None and self._reading.is_done():
                self._forget_reading()
            return
        self._interpreters.tend()
        try:
            number = self._begin_if_asked(upcoming)
        except Exception as error:
            self._drop_upcoming()
            if not upcoming.cause:
                raise
            self._refuse(upcoming.cause, error)
            return
        if number is not None:
            self._drop_upcoming()
            if upcoming.cause:
                say(f"{upcoming.cause}: starting generation {number}")

    def _begin_if_asked(self, upcoming: Upcoming) -> int | None:
        """The number of the generation; `None` while the configuration is read or a Python has not
        answered."""
        while self._interpreters.is_over():
            self._interpreters.note_builds()
            if upcoming.settings is None:
                if self._reading is None:
                    self._reading, self._read_for = Reading(self._reread, self._system), upcoming
                if not self._reading.is_done():
                    break
                reading = self._reading
                self._forget_reading()
                if self._read_for is not upcoming:
                    # Another SIGHUP came while it was read.
                    continue
                try:
                    upcoming.settings = reading.settings()
                except free_threading.Unasked as python:
                    self._interpreters.ask([python.python_home])
                    continue
            groups = upcoming.settings.groups
            if not self._interpreters.ask(each.python_home for each in groups):
                self._interpreters.refuse(groups)
                return self._life_cycle.begin(self._reported(upcoming.settings), upcoming.reason)
        return None

    def _forget_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
        self._reading = None

    def _drop_upcoming(self) -> None:
        self._interpreters.cancel()
        self._upcoming = None

    def _refuse(self, cause: str, error: Exception) -> None:
        """No error in a new configuration may end the generation that runs."""
        current, pending = self._life_cycle.current, self._life_cycle.pending
        assert current is not None
        what = error if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        goes_on = f"generation {current.number} goes on serving"
        if pending is not None:
            goes_on += f", and {pending.number} starting"
        else:
            self._service_manager.is_ready()
        say(f"{cause}: {what}; {goes_on}")

    def _describe(self) -> Status:
        """The document that `headway status` shows; see `status_document`."""
        current, deaths = self._life_cycle.current, self._life_cycle.deaths
        shown = current or self._life_cycle.pending
        state = "serving" if current is not None else "starting"
        return {
            "pid": os.getpid(),
            "state": state if self._life_cycle.is_wanted() else "stopping",
            "since": self._since,
            "generation": shown.number if shown is not None else 0,
            "groups": [
                {
                    "name": group.name,
                    "addresses": [
                        str(each) for each in self._listeners.addresses_of(running.group)
                    ],
                    "processes": [
                        of_process(each) for each in self._children if each.group.name == group.name
                    ],
                    "deaths": of_deaths(deaths.get(group.name, Deaths())),
                }
                for running in (shown.groups if shown is not None else ())
                for group in running.process_groups
            ],
        }
