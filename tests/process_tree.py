"""The descendants of a process, and how each of them ended, from /proc and from descriptors of
processes."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# <linux/pidfd.h>: of a process that has been waited for, Linux 6.15 and later.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3


def children(pid: int | str) -> set[int]:
    found: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with (
                suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{pid}/task/{thread}/children", "rb") as file,
            ):
                found.update(map(int, file.read().split()))
    return found


def descendants(pid: int | str, without: Iterable[int] = ()) -> set[int]:
    """Of `pid`. Those in `without`, and their descendants, do not count."""
    found = children(pid).difference(without)
    for child in list(found):
        found |= descendants(child, without)
    return found


def state(pid: int) -> str:
    """The letter of proc(5), such as S for sleeping, Z for ended and not waited for; "" if it is
    gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def open_files(pid: int) -> dict[str, str]:
    """The targets of its descriptors. One that it closes meanwhile is left out."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found[number] = os.readlink(f"/proc/{pid}/fd/{number}")
    return found


def described(pid: int) -> str:
    """Its id, its command line, its state, and where in the kernel it waits."""
    process = Path(f"/proc/{pid}")
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        name = (process / "comm").read_text().strip()
        wchan = (process / "wchan").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return f"{pid} (gone)"
    return f"{pid} ({' '.join(words).strip() or name}; state {state(pid)}, in {wchan})"


class Watched:
    """Reports the ends of processes, whoever waits for them. A descriptor refers to the same
    process even when another one gets its id."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._descriptors: dict[int, int] = {}
        self.commands: dict[int, str] = {}
        for pid in sorted(pids):
            with suppress(ProcessLookupError):
                self._descriptors[pid] = os.pidfd_open(pid)
                self.commands[pid] = described(pid)

    def wait(self, limit_s: float) -> set[int]:
        """Waits until all have ended, for up to `limit_s`; those that have not."""
        left = {descriptor: pid for pid, descriptor in self._descriptors.items()}
        poll = select.poll()
        for descriptor in left:
            poll.register(descriptor, select.POLLIN)
        end = time.monotonic() + limit_s
        while left:
            ready = poll.poll(max(0.0, end - time.monotonic()) * 1000)
            if not ready:
                break
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                del left[descriptor]
        return set(left.values())

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptors[pid], signal.SIGKILL)

    def killed(self) -> dict[int, str]:
        """Those that SIGKILL has ended and that their parent has waited for, with their command
        lines. Where the parent is gone, it may be this process that has to."""
        for pid in self._descriptors:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return {
            pid: self.commands[pid]
            for pid, descriptor in self._descriptors.items()
            if _ended_by(descriptor) == signal.SIGKILL
        }

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ended_by(descriptor: int) -> int:
    """The number of the signal; 0 if there was none, or if this kernel does not tell."""
    info = bytearray(64)
    struct.pack_into("Q", info, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(descriptor, PIDFD_GET_INFO, info)
    except OSError:
        return 0
    (mask,) = struct.unpack_from("Q", info)
    (status,) = struct.unpack_from("i", info, 60)
    return int(status) & 0x7F if mask & PIDFD_INFO_EXIT else 0
