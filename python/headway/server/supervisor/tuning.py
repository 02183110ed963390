"""A client of `headway tune`: it may try settings of a group's GIL while the server serves.

A trial is a lease. When the client's connection closes, when the client sends nothing for
`LEASE_S`, or when the configuration is read again, the processes get back the setting that they
had. Only one client can tune at a time. Each line from the client is a JSON object, and has one
line as its answer.

Only the supervisor's single thread uses this module; it never blocks here.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from headway.options import SWITCH_INTERVAL, Policy
from headway.report.distributions import sum_distributions
from headway.server.control import UCRED
from headway.server.settings import DEFAULT_POLICY, ProcessGroup, ServerSettings
from headway.server.stderr import say
from headway.server.supervisor.messages import Block, Fields, Malformed
from headway.server.supervisor.process import Process, State
from headway.server.system import Clock

# The client renews it every second.
LEASE_S = 4.0
# A process takes the GIL once to answer.
PATIENCE_S = 0.5
MAX_LINE_BYTES = 65_536


class GilSetting(NamedTuple):
    policy: str
    switch_interval_s: float


class Open(NamedTuple):
    """`None` is the server's only group."""

    group: str | None


class Try(NamedTuple):
    setting: GilSetting


class Apply(NamedTuple):
    setting: GilSetting


class TuneBlock(NamedTuple):
    action: str
    # Of the requests that are read; `None` reads all.
    path: str | None


class Renew(NamedTuple):
    pass


Command = Open | Try | Apply | TuneBlock | Renew


class Refused(Exception):
    """A command cannot be obeyed; the text is for the client."""


def parse_command(line: bytes) -> Command:
    """Raises `Malformed`, or `Refused` for an unknown command."""
    fields = Fields.of_json(line)
    name = fields.text("command", MAX_LINE_BYTES)
    if name == "open":
        return Open(fields.text_or_none("group", MAX_LINE_BYTES))
    if name == "try":
        return Try(_setting(fields))
    if name == "apply":
        return Apply(_setting(fields))
    if name == "block":
        path = fields.text_or_none("path", MAX_LINE_BYTES) if fields.has("path") else None
        return TuneBlock(fields.one_of("action", ("begin", "end", "read")), path)
    if name == "renew":
        return Renew()
    raise Refused(f"there is no command {name[:200]!r}")


def _setting(fields: Fields) -> GilSetting:
    try:
        interval_s = SWITCH_INTERVAL.accept(fields.value("switch_interval_s"))
        return GilSetting(Policy().accept(fields.value("policy")), interval_s)
    except (ValueError, OverflowError):
        raise Malformed("a setting is not allowed") from None


class Session:
    """The client and what it has asked for."""

    def __init__(self, client: socket.socket, expires_at: float) -> None:
        client.setblocking(False)
        self.socket = client
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size)
        self.pid: int = struct.unpack("3i", credentials)[0]
        self.expires_at = expires_at
        self.received = b""
        self.group: ProcessGroup | None = None
        self.trial: GilSetting | None = None
        # The processes that began the block, and while it is read, their counts and the time until
        # which these are waited for.
        self.counted: set[Process] = set()
        self.counts: dict[Process, Block] = {}
        self.read_until: float | None = None

    def is_trying(self, group: str) -> bool:
        return self.trial is not None and self.group is not None and self.group.name == group

    def has_gone(self) -> bool:
        """Whether the client has closed the connection."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def send(self, **answer: Any) -> None:
        """Raises OSError."""
        self.socket.sendall(json.dumps(answer).encode() + b"\n")


class Tuning:
    """At most one session at a time, and the settings that earlier ones left."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._session: Session | None = None
        # By the name of the group, as the configuration was read last.
        self._configured: dict[str, tuple[str | None, float | None]] = {}
        # By the name of the group; holds until its configuration changes.
        self._applied: dict[str, GilSetting] = {}

    def fileno(self) -> int:
        """The client's socket; -1 if there is none."""
        return -1 if self._session is None else self._session.socket.fileno()

    def deadlines(self) -> Iterator[float]:
        if self._session is not None:
            yield self._session.expires_at
            if self._session.read_until is not None:
                yield self._session.read_until

    def admit(self, client: socket.socket) -> None:
        session = Session(client, self._clock() + LEASE_S)
        if self._session is not None and self._session.has_gone():
            # This client may have waited for that end, which `hear_client` has not seen yet.
            self.end()
        if self._session is None:
            self._session = session
            return
        with client, contextlib.suppress(OSError):
            session.send(error=f"another headway tune (pid {self._session.pid}) is at work")

    def hear_client(self, processes: Iterable[Process]) -> None:
        """Obeys the lines that the client has sent, or ends the session if it has gone."""
        session = self._session
        if session is None:
            return
        try:
            data = session.socket.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        session.received += data
        if not data or len(session.received) > MAX_LINE_BYTES:
            self.end()
            return
        session.expires_at = self._clock() + LEASE_S
        *lines, session.received = session.received.split(b"\n")
        try:
            for line in lines:
                self._answer(session, line, list(processes))
        except OSError:
            self.end()

    def hear(self, process: Process, counts: Block) -> None:
        """Takes the counts of a process's block."""
        session = self._session
        if session is not None and session.read_until is not None and process in session.counted:
            session.counts[process] = counts

    def note_ready(self, process: Process, switch_interval_s: float | None) -> None:
        """Notes the setting that a process has when it is ready to serve."""
        if switch_interval_s is not None:
            process.switch_interval_s = switch_interval_s
        process.gil_setting = _present(process)

    def tend(self, processes: Iterable[Process]) -> None:
        """Ends a lease that is over, tells each process the setting that it is to have, and answers
        the client that reads a block."""
        session = self._session
        if session is not None and self._clock() >= session.expires_at:
            say(f"headway tune (pid {session.pid}) is silent, and its trial is over")
            self.end()
        for process in processes:
            wanted = self._wanted(process)
            if process.is_template or process.gil_setting in (None, wanted):
                continue
            if process.tell("set gil", **wanted._asdict()):
                process.gil_setting = wanted
        if self._session is not None and self._session.read_until is not None:
            with contextlib.suppress(OSError):
                self._answer_read(self._session, processes)

    def end(self, why: str = "") -> None:
        """Ends the session, if there is one. `tend` takes its trial back."""
        if self._session is not None:
            with self._session.socket, contextlib.suppress(OSError):
                if why:
                    self._session.send(error=why)
            self._session = None

    def applied_to(self, settings: ServerSettings) -> ServerSettings:
        """The settings with what was applied, except to groups whose configuration has changed
        since."""
        configured = {each.name: (each.policy, each.switch_interval_s) for each in settings.groups}
        for name in [*self._applied]:
            if configured.get(name) != self._configured.get(name):
                applied = self._applied.pop(name)
                say(f"group {name}: the configuration replaces {applied.policy}")
        self._configured = configured
        groups = tuple(
            replace(group, **self._applied[group.name]._asdict())
            if group.name in self._applied
            else group
            for group in settings.groups
        )
        return replace(settings, groups=groups)

    def _wanted(self, process: Process) -> GilSetting:
        session, name = self._session, process.group.name
        if session is not None and session.is_trying(name):
            assert session.trial is not None
            return session.trial
        return self._applied.get(name) or _present(process)

    def _answer(self, session: Session, line: bytes, processes: list[Process]) -> None:
        try:
            answer = self._obey(session, parse_command(line), processes)
            if answer is not None:
                session.send(**answer)
        except Refused as reason:
            session.send(error=str(reason))
        except Malformed:
            session.send(error=f"the server does not understand {line[:200]!r}")

    def _obey(
        self, session: Session, command: Command, processes: list[Process]
    ) -> dict[str, Any] | None:
        """The answer; None if it comes later. Raises `Refused`."""
        if isinstance(command, Open):
            session.group = _choose(command.group, processes)
            return _describe(session.group, _serving(session.group, processes))
        if session.group is None:
            raise Refused("no group is open")
        serving = _serving(session.group, processes)
        if isinstance(command, Try):
            _refuse_own_gils(session.group, command.setting, serving)
            session.trial = command.setting
            self.tend(processes)
        elif isinstance(command, Apply):
            _refuse_own_gils(session.group, command.setting, serving)
            self._applied[session.group.name] = command.setting
            say(
                f"headway tune (pid {session.pid}) sets {command.setting.policy} in "
                f"{session.group.name}"
            )
        elif isinstance(command, TuneBlock):
            self._pass_on(session, command, serving)
            return None if command.action == "read" else {}
        return {}

    def _pass_on(self, session: Session, command: TuneBlock, serving: set[Process]) -> None:
        if command.action == "begin":
            session.counted = serving
        if command.action == "read":
            session.counts.clear()
            session.read_until = self._clock() + PATIENCE_S
        for process in session.counted:
            process.tell("block", action=command.action, path=command.path)

    def _answer_read(self, session: Session, processes: Iterable[Process]) -> None:
        """Answers once all counts are there, or those that lack are late."""
        assert session.read_until is not None
        assert session.group is not None
        missing = session.counted - session.counts.keys()
        if missing and self._clock() < session.read_until:
            return
        session.read_until = None
        counts = list(session.counts.values())
        session.send(
            errors=sum(each.errors for each in counts),
            cpu_ns=sum(each.cpu_ns for each in counts),
            response=sum_distributions(each.response for each in counts),
            # A process that ended or began within the block has not counted its requests.
            is_whole=not missing and session.counted == _serving(session.group, processes),
        )


def _present(process: Process) -> GilSetting:
    return GilSetting(process.group.policy or DEFAULT_POLICY, process.switch_interval_s)


def _serving(group: ProcessGroup, processes: Iterable[Process]) -> set[Process]:
    return {
        each for each in processes if each.group.name == group.name and each.state is State.SERVING
    }


def _choose(name: str | None, processes: list[Process]) -> ProcessGroup:
    """Raises `Refused`."""
    groups = {each.group.name: each.group for each in processes if each.state is State.SERVING}
    names = ", ".join(sorted(groups))
    if not groups:
        raise Refused("no process serves yet")
    # A server is seldom tuned for what its background process answers.
    in_front = [each.name for each in groups.values() if not each.is_background] or list(groups)
    if name is None and len(in_front) > 1:
        raise Refused(f"it has several process groups; choose one with --group: {names}")
    chosen = in_front[0] if name is None else name
    if chosen not in groups:
        raise Refused(f"--group: found {chosen!r}; allowed: one of {names}")
    return groups[chosen]


def _refuse_own_gils(group: ProcessGroup, setting: GilSetting, serving: set[Process]) -> None:
    """Raises `Refused` where the setting would not take effect."""
    if _has_own_gils(group) and any(_present(each) != setting for each in serving):
        raise Refused(f"the interpreters of process group {group.name} have GILs of their own")


def _has_own_gils(group: ProcessGroup) -> bool:
    return any(each.own_gil for each in group.application_groups)


def _describe(group: ProcessGroup, serving: set[Process]) -> dict[str, Any]:
    newest = max(serving, key=lambda each: each.since)
    setting = newest.gil_setting or _present(newest)
    return {
        "group": group.name,
        "policy": setting[0],
        "switch_interval_s": setting[1],
        "processes": len(serving),
        "threads": group.threads,
        "interpreters": max(each.interpreters for each in group.application_groups),
        "own_gil": _has_own_gils(group),
    }
