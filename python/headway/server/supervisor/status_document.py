"""The status document: the JSON object that the status socket sends, as `headway status --json`
shows it."""

from __future__ import annotations

from typing import TypedDict


class InterpreterStatus(TypedDict):
    """A place of an application group. `made` is the number of interpreters that it has had."""

    name: str
    requests: int
    made: int


class ProcessStatus(TypedDict):
    """`number` is None for a template, `gil` is "on", "off", or None if the process did not report
    it. `undeclared` has the modules that were imported without a GIL and do not declare that they
    can run so. `requests` is None if the process did not answer."""

    number: int | None
    pid: int | None
    state: str
    since: float
    generation: int
    gil: str | None
    undeclared: list[str]
    requests: int | None
    interpreters: list[InterpreterStatus]


class Death(TypedDict):
    """The last process of a group that ended; `time` is in seconds since 1970."""

    reason: str
    pid: int
    time: float


class DeathsStatus(TypedDict):
    count: int
    by_reason: dict[str, int]
    last: Death | None


class GroupStatus(TypedDict):
    name: str
    addresses: list[str]
    processes: list[ProcessStatus]
    deaths: DeathsStatus


class Status(TypedDict):
    """`since` is in seconds since 1970, here and in processes."""

    pid: int
    state: str
    since: float
    generation: int
    groups: list[GroupStatus]
