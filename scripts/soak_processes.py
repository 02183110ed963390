"""The figures of /proc for the processes that soaks watch: their memory, descriptors and
connections, whether these grow, and what their threads do.

Knows nothing of servers.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_POINTS = 400


class Sample(NamedTuple):
    time_s: float
    rss_bytes: int
    descriptors: int
    threads: int


class Connection(NamedTuple):
    """One end of a TCP connection, with this process."""

    remote_port: int
    state: str


# As in the kernel's include/net/tcp_states.h.
STATES = {"01": "ESTABLISHED", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "08": "CLOSE_WAIT"}
LISTEN = "0A"
# And of a UNIX socket, in include/uapi/linux/net.h.
CONNECTED = "03"


def sample(pid: int) -> Sample | None:
    """None: it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        descriptors = len(os.listdir(folder / "fd"))
        return Sample(
            time.monotonic(), pages * PAGE_BYTES, descriptors, len(os.listdir(folder / "task"))
        )
    except (FileNotFoundError, ProcessLookupError):
        return None


def children(pid: int) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except FileNotFoundError:
        return []


def tree(pid: int) -> list[int]:
    """This process and its descendants, whichever thread has started them."""
    found = [pid]
    for task in _tasks(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text().split():
                found += tree(int(child))
    return found


def described(pid: int) -> str:
    """Each of its threads: its name, its state, and where in the kernel it waits."""
    threads = []
    for task in _tasks(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            name, where = ((task / each).read_text().strip() for each in ("comm", "wchan"))
            threads.append(f"{name}:{state}:{where}")
    return f"process {pid}: {', '.join(threads)}"


def _tasks(pid: int) -> list[Path]:
    try:
        return [*Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_stopped(pid: int) -> bool:
    """By SIGSTOP, every thread of it; so is one that has ended."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return all(stat.rpartition(") ")[2][0] in "TZX" for stat in stats)


def sockets(pid: int) -> set[str]:
    """The inodes of those that a process has open."""
    names = set()
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                names.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    except (FileNotFoundError, ProcessLookupError):
        return set()
    return {name[len("socket:[") : -1] for name in names if name.startswith("socket:[")}


def connections(pid: int, ports: Collection[int]) -> list[Connection]:
    """Those that process `pid` has accepted on one of `ports` and not closed."""
    inodes = sockets(pid)
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        is_ours = int(local.rpartition(":")[2], 16) in ports and rest[5] in inodes
        if is_ours and state != LISTEN:
            remote_port = int(remote.rpartition(":")[2], 16)
            found.append(Connection(remote_port, STATES.get(state, state)))
    return found


def unix_connections(pid: int, path: str) -> int:
    """How many process `pid` has accepted on a UNIX socket and not closed."""
    inodes = sockets(pid)
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sum(row[5] == CONNECTED and row[6] in inodes and row[7:] == [path] for row in rows)


def slope_per_min(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """The median of the slopes between any two samples (Theil and Sen): what a few of them show
    does not count."""
    step = -(-len(samples) // MAX_POINTS)
    points = [(each.time_s / 60, value(each)) for each in samples[::step]]
    slopes = [
        (b - a) / (there - here)
        for index, (here, a) in enumerate(points)
        for there, b in points[index + 1 :]
        if there > here
    ]
    return median(slopes) if slopes else 0.0


def range_of(values: Iterable[int]) -> str:
    known = sorted(values)
    return f"{known[0]}-{known[-1]}" if known else "none"
