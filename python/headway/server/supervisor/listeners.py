"""The sockets from which the processes of a server get connections: opened or inherited once, and
shared by all processes.

They outlive the generations of workers. A new generation gets the same sockets, so no connection is
refused in between. Only the supervisor's single thread uses this module.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from headway.address import Address
from headway.errors import CommandError
from headway.server import identity
from headway.server.binding import Listener, bind
from headway.server.settings import ProcessGroup
from headway.server.socket_file import SocketFile
from headway.server.supervisor.handovers import Handovers
from headway.server.supervisor.inherited import address_of, by_number, is_same
from headway.server.task import HandoverFds

# From linux/filter.h. On a listening socket, the filter sees each packet from the TCP header on. It
# drops packets with SYN and lets handshakes finish that have begun.
SO_ATTACH_FILTER = 26
BPF_LD_B_ABS, BPF_JMP_JSET, BPF_RET = 0x30, 0x45, 0x06
TCP_FLAGS_OFFSET, TCP_SYN = 13, 0x02
DROP_SYN = (
    (BPF_LD_B_ABS, 0, 0, TCP_FLAGS_OFFSET),
    (BPF_JMP_JSET, 0, 1, TCP_SYN),
    (BPF_RET, 0, 0, 0),
    (BPF_RET, 0, 0, 0xFFFFFFFF),
)


class ListenerKey(NamedTuple):
    """Identifies a socket by the address that was requested. Since each process group gets its own
    socket for port 0, `group` is its name then; otherwise `group` is ""."""

    address: Address
    group: str

    @classmethod
    def of(cls, address: Address, group: ProcessGroup) -> ListenerKey:
        return cls(address, group.name if address.is_any_port else "")


class Opened(NamedTuple):
    """An open socket. `file` is set for a UNIX socket that this server bound itself."""

    listener: Listener
    is_inherited: bool = False
    file: SocketFile | None = None

    def has_lost_its_file(self) -> bool:
        return self.file is not None and not self.file.is_there()

    def stop_queueing(self) -> None:
        if self.file is not None:
            self.file.remove()
        elif not self.is_inherited:
            with contextlib.suppress(OSError):
                _drop_syn(self.listener.socket)

    def close(self) -> None:
        """An inherited socket stays open for the service manager."""
        if self.file is not None:
            self.file.remove()
        if not self.is_inherited:
            self.listener.socket.close()

    def retire(self) -> None:
        """Stops queueing and closes the supervisor's descriptor. Workers that still have the socket
        may empty its accept queue."""
        self.stop_queueing()
        self.close()


class Listeners:
    """The sockets of the current generation and of the pending one."""

    def __init__(self, inherited: Iterable[socket.socket] = ()) -> None:
        """`inherited` are the sockets that a service manager opened."""
        self._inherited = [Listener(each, address_of(each)) for each in inherited]
        self._open: dict[ListenerKey, Opened] = {}
        # Sockets of the current generation for which the pending generation has another socket,
        # because somebody removed the UNIX socket's file.
        self._displaced: dict[ListenerKey, Opened] = {}
        self._handovers = Handovers()

    def open(self, groups: Collection[ProcessGroup]) -> None:
        """Opens the sockets that the groups need and that are not open yet. If it raises
        `CommandError`, nothing has changed."""
        new: dict[ListenerKey, Opened] = {}
        try:
            for group in groups:
                for place in _places(group):
                    opened = new.get(place) or self._open.get(place)
                    if opened is None or opened.has_lost_its_file():
                        new[place] = self._open_one(place.address, group)
            self._handovers.open(groups)
        except BaseException:
            for opened in new.values():
                opened.close()
            raise
        for place in new.keys() & self._open.keys():
            # A socket that replaced another belonged to a pending generation that never served,
            # so it is closed with its accept queue.
            replaced = self._open[place]
            if self._displaced.setdefault(place, replaced) is not replaced:
                replaced.close()
        self._open |= new

    def _open_one(self, address: Address, group: ProcessGroup) -> Opened:
        inherited = self._find_inherited(address)
        if inherited is not None:
            return Opened(inherited, is_inherited=True)
        try:
            access = identity.socket_access(group)
            # The address may be from a flag, a file or an Apache file.
            option = f"process group {group.name!r}: bind"
            listener = bind(address, group.listen_backlog, access, option)
        except CommandError as error:
            raise self._with_hint(error, address) from None
        return Opened(listener, file=SocketFile(address.path) if address.path else None)

    def _find_inherited(self, address: Address) -> Listener | None:
        for listener in self._inherited:
            if address.fd == listener.socket.fileno() or is_same(address, listener.address):
                return listener
        return None

    def _with_hint(self, error: CommandError, address: Address) -> CommandError:
        """Adds a hint to the error if an inherited socket has the same port on another host, which
        may be the reason for the error."""
        for each in self._inherited:
            are_hosts = address.path is None and each.address.path is None
            if are_hosts and each.address.port == address.port:
                hint = f"{each.address} was passed; bind that, or {by_number(each.socket)}"
                return CommandError(f"{error} ({hint})", error.exit_code)
        return error

    def of(self, group: ProcessGroup) -> list[Listener]:
        return [self._open[place].listener for place in _places(group)]

    def handover_of(self, group: ProcessGroup) -> HandoverFds | None:
        """See `Handovers.of`."""
        return self._handovers.of(group)

    def addresses_of(self, group: ProcessGroup) -> list[Address]:
        """The group's addresses with their actual ports, without those that are closed."""
        opened = [self._open[place] for place in _places(group) if place in self._open]
        return [each.listener.address for each in opened]

    def find_unused(self) -> Iterator[str]:
        """A warning for each inherited socket that no group uses."""
        used = [each.listener for each in self._open.values()]
        for each in self._inherited:
            if each not in used:
                yield (
                    f"the socket {each.address} was passed and nobody serves it, so whoever "
                    f"connects waits in vain; bind it by its address or as {by_number(each.socket)}"
                )

    def drop_others(self, groups: Collection[ProcessGroup]) -> None:
        """Retires the sockets that none of `groups` uses. `groups` are those of the current and
        the pending generation."""
        for opened in self._take_others(groups):
            opened.retire()

    def keep(self, groups: Collection[ProcessGroup]) -> None:
        """Retires the sockets that `groups`, which serve from now on, do not use."""
        self.drop_others(groups)
        for opened in self._displaced.values():
            opened.retire()
        self._displaced.clear()

    def fall_back(self, groups: Collection[ProcessGroup]) -> None:
        """Closes the sockets of an abandoned generation. `groups` go on serving with theirs."""
        for place, opened in self._displaced.items():
            self._open[place].close()
            self._open[place] = opened
        self._displaced.clear()
        for opened in self._take_others(groups):
            opened.close()

    def _take_others(self, groups: Collection[ProcessGroup]) -> list[Opened]:
        """Removes the sockets that the groups do not need from the open ones and returns them.
        Closes the queues that they do not need."""
        self._handovers.keep(groups)
        wanted = {place for group in groups for place in _places(group)}
        return [self._open.pop(place) for place in self._open.keys() - wanted]

    def stop_queueing(self) -> None:
        """Admits no new connections to the accept queues, so that workers can empty the queues
        before they close the sockets. An inherited socket still queues connections, for the server
        that uses it next."""
        self._handovers.stop_queueing()
        for opened in (*self._open.values(), *self._displaced.values()):
            opened.stop_queueing()

    def shut_down(self) -> None:
        """Closes all sockets at the end and shuts down those that are not inherited, since a
        process that an application forked may still hold them."""
        for opened in (*self._open.values(), *self._displaced.values()):
            if not opened.is_inherited:
                with contextlib.suppress(OSError):
                    opened.listener.socket.shutdown(socket.SHUT_RDWR)
            opened.close()
        self._handovers.close()
        self._open.clear()
        self._displaced.clear()


def _places(group: ProcessGroup) -> Iterator[ListenerKey]:
    return (ListenerKey.of(address, group) for address in group.binds)


def _drop_syn(listener: socket.socket) -> None:
    code = array("B", b"".join(struct.pack("HBBI", *each) for each in DROP_SYN))
    program = struct.pack("HP", len(DROP_SYN), code.buffer_info()[0])
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
