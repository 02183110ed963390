"""A process and its descendants: the resources that they use, from /proc, and their end.

This module does not know what the processes do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Positions in /proc/PID/stat after the name in parentheses, see proc(5).
PARENT, USER_TICKS, RSS_PAGES = 1, 11, 21


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def stats() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        # A process may end at any moment.
        with suppress(FileNotFoundError, ProcessLookupError):
            if name.isdecimal():
                yield int(name), stat(int(name))


def tree(root: int) -> dict[int, list[str]]:
    """`root` and its descendants, by pid."""
    every = dict(stats())
    found: dict[int, list[str]] = {}
    wanted = {root} & every.keys()
    while wanted:
        found |= {pid: every[pid] for pid in wanted}
        wanted = {pid for pid, fields in every.items() if int(fields[PARENT]) in wanted}
    return found


def cpu_s(root: int) -> float:
    """User and system time so far, including that of children that have ended."""
    return sum(map(used_s, tree(root).values()))


def used_s(fields: list[str]) -> float:
    return sum(map(int, fields[USER_TICKS : USER_TICKS + 4])) / TICKS_PER_S


def rss_bytes(root: int) -> int:
    """Resident memory; shared memory counts for each of the processes."""
    return sum(int(fields[RSS_PAGES]) * PAGE_BYTES for fields in tree(root).values())


class Memory(NamedTuple):
    """Resident memory. `rss_bytes` counts a page for each process that has it. `pss_bytes` divides
    it among them, so only its sum over processes is the memory that they use."""

    rss_bytes: int
    pss_bytes: int

    def __add__(self, other: object) -> Memory:
        if not isinstance(other, Memory):
            return NotImplemented
        return Memory(self.rss_bytes + other.rss_bytes, self.pss_bytes + other.pss_bytes)


def memory(pid: int) -> Memory:
    """The memory of one process, from its smaps_rollup, see proc(5)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines}
    return Memory(kilobytes["Rss:"] * 1024, kilobytes["Pss:"] * 1024)


def pss_bytes(root: int) -> int:
    """The memory that `root` and its descendants use."""
    total = 0
    for pid in tree(root):
        # A process that ends meanwhile uses none.
        with suppress(FileNotFoundError, ProcessLookupError):
            total += memory(pid).pss_bytes
    return total


class Descendants:
    """The present descendants of a process. Each has a descriptor, which refers to the same process
    even when another one gets its id."""

    def __init__(self, root: int) -> None:
        self._descriptors = []
        for pid in tree(root).keys() - {root}:
            with suppress(ProcessLookupError):
                self._descriptors.append(os.pidfd_open(pid))

    def kill(self) -> None:
        for descriptor in self._descriptors:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
