"""The interpreters of a process, by slot, and the application group of each slot. Pure.

A slot holds an interpreter and, once that interpreter is recycled, its successor. The native part
refers to slots by number.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.server.settings import ApplicationGroup, Mount, ProcessGroup
from headway.server.worker.native_limits import to_ns

MAIN_INTERPRETER = "%{GLOBAL}"


class InterpreterSlot(NamedTuple):
    """The `number`th interpreter of an application group, from 1."""

    group: ApplicationGroup
    number: int

    @property
    def name(self) -> str:
        """The name of the interpreter and of its own GIL, if it has one."""
        if self.group.interpreters == 1:
            return self.group.name or MAIN_INTERPRETER
        return f"{self.group.name or MAIN_INTERPRETER}#{self.number}"

    @property
    def is_main(self) -> bool:
        return not self.group.name and self.number == 1

    def about(self, threads: int, multiprocess: bool) -> dict[str, object]:
        """The environ variables that describe the interpreter. `threads` is the number of threads
        of the process."""
        interpreters = self.group.interpreters
        return {
            "headway.application_group": self.group.name,
            "wsgi.multithread": threads > interpreters,
            # Another interpreter can run the same application, just as another process can.
            "wsgi.multiprocess": multiprocess or interpreters > 1,
        }


class Layout:
    """The slots, groups and routes of a process, in the form that `_native.server_open` takes."""

    def __init__(self, group: ProcessGroup) -> None:
        used = {each.application_group for each in group.mounts}
        groups = [each for each in group.application_groups if each.name in used]
        # Without mounts, the caller passes the application, and its interpreter runs it.
        self.groups = groups or [ApplicationGroup()]
        self.slots = [
            InterpreterSlot(each, number)
            for each in self.groups
            for number in range(1, each.interpreters + 1)
        ]
        names = [each.name for each in self.groups]
        self.routes = [
            (each.path, names.index(each.application_group)) for each in group.mounts
        ] or [("", 0)]

    @property
    def native_groups(self) -> list[tuple[int, int, int]]:
        """For each group: the number of interpreters, the maximum of requests, and the switch
        interval of its threads in ns. The interval is 0 for none, and for an own GIL, which has its
        own interval."""
        return [
            (each.interpreters, each.maximum_requests, 0 if each.own_gil else interval_ns(each))
            for each in self.groups
        ]

    @property
    def gils(self) -> int:
        """The number of GILs in a process that is not free-threaded: the number of interpreters
        that can run Python at the same time."""
        own = sum(each.group.own_gil and not each.is_main for each in self.slots)
        return own + (own < len(self.slots))


def interval_ns(group: ApplicationGroup) -> int:
    """The switch interval of the group in ns; 0 if the group has none of its own."""
    return to_ns(group.switch_interval_s or 0.0)


def mounts_of(group: ProcessGroup, name: str) -> list[Mount]:
    """The applications of one application group."""
    return [each for each in group.mounts if each.application_group == name]
