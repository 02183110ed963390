"""The interpreters of a process, by place: which application group each is for. Pure.

A place is where an interpreter is, and its successor once it is recycled; the native part knows
them by number.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.server.settings import ApplicationGroup, Mount, ProcessGroup
from headway.server.worker.limits import to_ns

MAIN_INTERPRETER = "%{GLOBAL}"


class Place(NamedTuple):
    """The `number`th interpreter of an application group, from 1."""

    group: ApplicationGroup
    number: int

    @property
    def name(self) -> str:
        """What the interpreter is called, and its GIL if it has its own."""
        if self.group.interpreters == 1:
            return self.group.name or MAIN_INTERPRETER
        return f"{self.group.name or MAIN_INTERPRETER}#{self.number}"

    @property
    def is_main(self) -> bool:
        return not self.group.name and self.number == 1

    def about(self, threads: int, multiprocess: bool) -> dict[str, object]:
        """What the environ says of an interpreter of a process with so many threads."""
        interpreters = self.group.interpreters
        return {
            "headway.application_group": self.group.name,
            "wsgi.multithread": threads > interpreters,
            # An equivalent application may run in another interpreter as in another process.
            "wsgi.multiprocess": multiprocess or interpreters > 1,
        }


class Layout:
    """Who is where in a process of a group, as `_native.server_open` takes it."""

    def __init__(self, group: ProcessGroup) -> None:
        used = {each.application_group for each in group.mounts}
        groups = [each for each in group.application_groups if each.name in used]
        # Without mounts the application is handed over, in the interpreter that is.
        self.groups = groups or [ApplicationGroup()]
        self.places = [
            Place(each, number)
            for each in self.groups
            for number in range(1, each.interpreters + 1)
        ]
        names = [each.name for each in self.groups]
        self.routes = [
            (each.path, names.index(each.application_group)) for each in group.mounts
        ] or [("", 0)]

    @property
    def native_groups(self) -> list[tuple[int, int, int]]:
        """Interpreters, maximum requests, and the switch interval of threads in ns, 0 for none: of
        those that share a GIL. An own GIL has its interval itself."""
        return [
            (each.interpreters, each.maximum_requests, 0 if each.own_gil else interval_ns(each))
            for each in self.groups
        ]

    @property
    def gils(self) -> int:
        """Where there are any: how many interpreters can run Python at the same time."""
        own = sum(each.group.own_gil and not each.is_main for each in self.places)
        return own + (own < len(self.places))


def interval_ns(group: ApplicationGroup) -> int:
    """0: none of its own."""
    return to_ns(group.switch_interval_s or 0.0)


def mounts_of(group: ProcessGroup, name: str) -> list[Mount]:
    """The applications of one application group."""
    return [each for each in group.mounts if each.application_group == name]
