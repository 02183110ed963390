"""The status document: the JSON object that the status socket sends, as `headway status --json`
shows it."""

from __future__ import annotations

from typing import TypedDict


class InterpreterStatus(TypedDict):
    """An interpreter slot of an application group."""

    name: str  #: The name of its application group, with #N if the group has several.
    requests: int  #: How many requests its interpreters have had.
    made: int  #: How many interpreters it has had.


class ProcessStatus(TypedDict):
    """A process of a group: a worker, or the template that workers are forked from."""

    number: int | None  #: The number of the process in its group; null for a template.
    pid: int | None  #: The ID of the process; null before it has started.
    state: str  #: `starting`, `ready`, `serving`, `retiring`, `stopping`; `stopped` by a signal.
    since: float  #: When the state began, in seconds since 1970.
    generation: int  #: The number of the generation that it belongs to.
    gil: str | None  #: `on` or `off`; null if the process has not reported it.
    undeclared: list[str]  #: Modules imported without a GIL that do not declare support for that.
    requests: int | None  #: How many requests it has had; null if it did not answer.
    interpreters: list[InterpreterStatus]  #: A row for each interpreter slot.


class Death(TypedDict):
    """The last process of a group that ended."""

    reason: str  #: mod_wsgi's name of the reason, a signal or an exit status.
    pid: int  #: The ID of the process.
    time: float  #: When it ended, in seconds since 1970.


class DeathsStatus(TypedDict):
    """How many processes of a group ended, and why."""

    count: int  #: How many processes of the group have ended.
    by_reason: dict[str, int]  #: How many for each reason.
    last: Death | None  #: The last process that ended; null if none has.


class GroupStatus(TypedDict):
    """A process group."""

    name: str  #: The name of the process group.
    addresses: list[str]  #: The addresses on which it listens.
    processes: list[ProcessStatus]  #: A row for each process.
    deaths: DeathsStatus  #: The processes that ended.


class Status(TypedDict):
    """The document: a server."""

    pid: int  #: The ID of the supervisor.
    state: str  #: `starting`, `serving` or `stopping`.
    since: float  #: When the server started, in seconds since 1970.
    generation: int  #: The number of the current generation.
    groups: list[GroupStatus]  #: A row for each process group.
