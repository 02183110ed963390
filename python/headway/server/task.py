"""The task of a process: the supervisor's first message on the control socket."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from headway.server.control import Message
from headway.server.settings import ProcessGroup, Telemetry


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
    # Descriptors of the queues from which the process receives connections of other processes, and
    # in which it hands them its own; `None` if it hands none over.
    handover: tuple[int, int] | None = None

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
        handover = message["handover"] and tuple(message["handover"])
        telemetry = message["telemetry"] and Telemetry(**message["telemetry"])
        return cls(
            **message
            | {"group": group, "listeners": listeners, "handover": handover, "telemetry": telemetry}
        )
