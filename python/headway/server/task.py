"""The task of a process: the supervisor's first message on the control socket."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from headway.server.control import Message
from headway.server.settings import ProcessGroup, Telemetry


@dataclass(frozen=True)
class Task:
    """Descriptors are the process's own, inherited."""

    group: ProcessGroup
    # Of this process within its group, from 1.
    number: int
    # Descriptors of listening sockets that the process has inherited, with their addresses.
    listeners: tuple[tuple[int, str], ...]
    # Another process may run the application at the same time.
    multiprocess: bool
    # When the server ends, a table says what the process did, and, if it is labelled, which it is.
    shows_table: bool
    labelled: bool
    # Tell which files the application consists of.
    watched: bool
    # Fork workers on demand instead of serving.
    is_template: bool
    # Where it is to be, and was not started; `None`: where it was.
    directory: str | None = None
    telemetry: Telemetry | None = None

    def to_message(self) -> Message:
        # The environment comes as such, and may be large.
        group = replace(self.group, environment={}).to_json()
        return asdict(replace(self, group=ProcessGroup())) | {"group": group}

    @classmethod
    def from_message(cls, message: Message) -> Task:
        group = ProcessGroup.from_json(message["group"])
        listeners = tuple((fd, address) for fd, address in message["listeners"])
        telemetry = message["telemetry"] and Telemetry(**message["telemetry"])
        return cls(**message | {"group": group, "listeners": listeners, "telemetry": telemetry})
