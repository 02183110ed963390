"""The selection of processes for a query. Pure."""

from __future__ import annotations

from typing import NamedTuple

NOTHING: frozenset[str] = frozenset()


class Selection(NamedTuple):
    """A selection of processes. An empty set selects everything. `recording` names another store
    that is open in addition to the recorder's own."""

    hosts: frozenset[str] = NOTHING
    groups: frozenset[str] = NOTHING
    pids: frozenset[int] = frozenset()
    recording: str = ""

    def has_group(self, host: str, group: str) -> bool:
        """Whether the selection can contain processes of this group."""
        return (not self.hosts or host in self.hosts) and (not self.groups or group in self.groups)

    def has(self, host: str, group: str, pid: int) -> bool:
        return self.has_group(host, group) and (not self.pids or pid in self.pids)


EVERYTHING = Selection()
