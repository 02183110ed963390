"""The queues in which the processes of a group and its background process hand each other
connections. A queue belongs to no process: a process that ends leaves it to its successor.

Only the supervisor's single thread uses this module.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from typing import NamedTuple

from headway.address import Address
from headway.errors import CommandError, reason_of
from headway.server.settings import ProcessGroup
from headway.server.task import HandoverFds


class HandoverKey(NamedTuple):
    """Processes that hand each other connections agree on this: the numbers of the listeners, and
    the pages in the background."""

    group: str
    binds: tuple[Address, ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, group: ProcessGroup) -> HandoverKey:
        return cls(group.name, group.binds, group.background)


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
    """The queues of the groups that have background pages: that of the group's own processes, and
    that of its background process."""

    def __init__(self) -> None:
        self._open: dict[HandoverKey, tuple[HandoverQueue, HandoverQueue]] = {}

    def open(self, groups: Iterable[ProcessGroup]) -> None:
        """Opens the queues that the groups need and that are not open yet. If it raises
        `CommandError`, nothing has changed."""
        keys = {HandoverKey.of(group) for group in groups if group.background}
        new: list[HandoverQueue] = []
        try:
            for _ in range(2 * len(keys - self._open.keys())):
                new.append(HandoverQueue.open())
        except OSError as error:
            for queue in new:
                queue.close()
            raise CommandError(f"background: {reason_of(error)}") from None
        queues = iter(new)
        for key in keys - self._open.keys():
            self._open[key] = next(queues), next(queues)

    def of(self, group: ProcessGroup) -> HandoverFds | None:
        """The descriptors for the group's processes; `None` if it has no background pages."""
        if not group.background:
            return None
        to_front, to_background = self._open[HandoverKey.of(group)]
        return HandoverFds(
            to_front.receiving.fileno(),
            to_front.sending.fileno(),
            to_background.receiving.fileno(),
            to_background.sending.fileno(),
        )

    def keep(self, groups: Iterable[ProcessGroup]) -> None:
        """Closes the queues that none of `groups` uses."""
        wanted = {HandoverKey.of(group) for group in groups}
        for key in self._open.keys() - wanted:
            for queue in self._open.pop(key):
                queue.stop_queueing()
                queue.close()

    def stop_queueing(self) -> None:
        for queues in self._open.values():
            for queue in queues:
                queue.stop_queueing()

    def close(self) -> None:
        self.keep([])
