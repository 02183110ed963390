"""Which processes a question is about. Pure."""

from __future__ import annotations

from typing import NamedTuple

NOTHING: frozenset[str] = frozenset()


class Selection(NamedTuple):
    """An empty set does not choose: everything is in. `recording` names another store that is open
    beside the recorder's own."""

    hosts: frozenset[str] = NOTHING
    groups: frozenset[str] = NOTHING
    pids: frozenset[int] = frozenset()
    recording: str = ""

    def has_group(self, host: str, group: str) -> bool:
        """Whether processes of this group can be in it."""
        return (not self.hosts or host in self.hosts) and (not self.groups or group in self.groups)

    def has(self, host: str, group: str, pid: int) -> bool:
        return self.has_group(host, group) and (not self.pids or pid in self.pids)


EVERYTHING = Selection()
