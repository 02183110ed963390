"""The task of a process: the supervisor's first message on the control socket."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from headway.server.control import Message
from headway.server.settings import ProcessGroup, Telemetry


class HandoverFds(NamedTuple):
    """The descriptors of the queues in which the processes of a group, those in front, and its
    background process hand each other connections."""

    front_receives: int
    to_front: int
    background_receives: int
    to_background: int

    def of(self, group: ProcessGroup) -> tuple[int, int]:
        """Those with which a process of the group receives and sends. Closes the others, which it
        must not keep: a queue ends with the last process that receives from it."""
        front = self.front_receives, self.to_background
        background = self.background_receives, self.to_front
        own, others = (background, front) if group.is_background else (front, background)
        for fd in others:
            os.close(fd)
        return own


@dataclass(frozen=True)
class Task:
    """The task. Its descriptors belong to the process, which inherited them."""

    group: ProcessGroup
    # The number of the process within its group, from 1.
    number: int
    # Descriptors of listening sockets that the process has inherited, with their addresses.
    listeners: tuple[tuple[int, str], ...]
    # Another process may run the application at the same time.
    multiprocess: bool
    # When the server ends, a table shows the work of the process; `labelled` adds the process's
    # name.
    shows_table: bool
    labelled: bool
    # Report the files of which the application consists.
    watched: bool
    # Fork workers on demand instead of serving.
    is_template: bool
    # The directory that the process changes to; `None` keeps the one in which it was started.
    directory: str | None = None
    telemetry: Telemetry | None = None
    handover: HandoverFds | None = None

    def inherited(self) -> list[int]:
        """The descriptors that the process inherits besides its control socket."""
        fds = [fd for fd, _ in self.listeners]
        fds.extend(self.handover or ())
        if self.telemetry is not None and self.telemetry.fd is not None:
            fds.append(self.telemetry.fd)
        return fds

    def to_message(self) -> Message:
        # The process gets the environment directly. It may be large, so the task does not repeat
        # it.
        group = replace(self.group, environment={}).to_json()
        return asdict(replace(self, group=ProcessGroup())) | {"group": group}

    @classmethod
    def from_message(cls, message: Message) -> Task:
        group = ProcessGroup.from_json(message["group"])
        listeners = tuple((fd, address) for fd, address in message["listeners"])
        handover = message["handover"] and HandoverFds(*message["handover"])
        telemetry = message["telemetry"] and Telemetry(**message["telemetry"])
        return cls(
            **message
            | {"group": group, "listeners": listeners, "handover": handover, "telemetry": telemetry}
        )
