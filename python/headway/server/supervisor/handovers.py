"""The queues in which the processes of a group and its background process hand each other
connections. A queue belongs to no process: a process that ends leaves it to its successor.

Only the supervisor's single thread uses this module.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from typing import NamedTuple

from headway.server.settings import ProcessGroup


class HandoverQueue(NamedTuple):
    """A pair of sockets."""

    receiving: socket.socket
    sending: socket.socket

    @classmethod
    def open(cls) -> HandoverQueue:
        """Raises `OSError`."""
        return cls(*socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))

    def stop_queueing(self) -> None:
        """From now on a process that would hand a connection over answers it itself. Those in the
        queue are still received."""
        with contextlib.suppress(OSError):
            self.receiving.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.receiving.close()
        self.sending.close()


class Handovers:
    """The queues of the groups that have background pages, by the name of the group: that of the
    group's own processes, and that of its background process."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[HandoverQueue, HandoverQueue]] = {}

    def open(self, groups: Iterable[ProcessGroup]) -> None:
        """Opens the queues that the groups need and that are not open yet. Raises `OSError`."""
        for group in groups:
            if group.background and group.front not in self._open:
                self._open[group.front] = HandoverQueue.open(), HandoverQueue.open()

    def of(self, group: ProcessGroup) -> tuple[int, int] | None:
        """The descriptors with which the group's processes receive connections and send them;
        `None` if it has no background pages."""
        if not group.background:
            return None
        own, other = self._open[group.front]
        if group.is_background:
            own, other = other, own
        return own.receiving.fileno(), other.sending.fileno()

    def keep(self, groups: Iterable[ProcessGroup]) -> None:
        """Closes the queues that `groups`, which serve from now on, do not use."""
        wanted = {group.front for group in groups if group.background}
        for name in self._open.keys() - wanted:
            for queue in self._open.pop(name):
                queue.stop_queueing()
                queue.close()

    def stop_queueing(self) -> None:
        for queues in self._open.values():
            for queue in queues:
                queue.stop_queueing()

    def close(self) -> None:
        self.keep([])
