"""The listening sockets of a server: opened or taken over once, and shared by all its processes.

They outlive generations of workers: a new one gets the same sockets, so no connection is refused
in between. The supervisor's one thread uses this.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from array import array
from collections.abc import Iterable, Iterator

from headway.errors import CommandError, reason_of
from headway.server import identity
from headway.server.binding import Address, Listener, bind, make_prompt
from headway.server.settings import ProcessGroup
from headway.server.socket_file import SocketFile

# linux/filter.h. Of a packet that a listening socket gets, the filter sees the TCP header: drop
# those with SYN, and let handshakes end that had begun.
SO_ATTACH_FILTER = 26
BPF_LD_B_ABS, BPF_JMP_JSET, BPF_RET = 0x30, 0x45, 0x06
TCP_FLAGS_OFFSET, TCP_SYN = 13, 0x02
DROP_SYN = (
    (BPF_LD_B_ABS, 0, 0, TCP_FLAGS_OFFSET),
    (BPF_JMP_JSET, 0, 1, TCP_SYN),
    (BPF_RET, 0, 0, 0),
    (BPF_RET, 0, 0, 0xFFFFFFFF),
)


class Listeners:
    """By the address that was asked for, of which port 0 is one."""

    def __init__(self, inherited: Iterable[socket.socket] = ()) -> None:
        """`inherited` are sockets that a service manager has opened; they stay open for it."""
        self._inherited = [Listener(each, _address_of(each)) for each in inherited]
        self._open: dict[Address, Listener] = {}
        self._owned: set[Address] = set()
        # Those of UNIX sockets that are still there.
        self._files: dict[Address, SocketFile] = {}

    def find_unused(self) -> Iterator[str]:
        """Inherited sockets that no group has, in words."""
        used = list(self._open.values())
        for each in self._inherited:
            if each not in used:
                yield (
                    f"the socket {each.address} was passed and nobody serves it, so whoever "
                    f"connects waits in vain; bind it by its address or as {by_number(each.socket)}"
                )

    def open(self, groups: Iterable[ProcessGroup]) -> list[Address]:
        """Opens what the groups need and is not open yet; all of it, or none if it raises
        `CommandError`. Returns the addresses that are new."""
        new: list[Address] = []
        try:
            for group in groups:
                for address in group.binds:
                    if address not in self._open:
                        self._open_one(address, group)
                        new.append(address)
        except BaseException:
            self.close(new)
            raise
        return new

    def _open_one(self, address: Address, group: ProcessGroup) -> None:
        inherited = self._find_inherited(address)
        if inherited is not None:
            self._open[address] = inherited
            return
        try:
            listener = bind(address, group.listen_backlog, identity.socket_access(group))
        except CommandError as error:
            raise self._with_hint(error, address) from None
        self._open[address] = listener
        self._owned.add(address)
        if address.path is not None:
            self._files[address] = SocketFile(address.path)

    def _find_inherited(self, address: Address) -> Listener | None:
        for listener in self._inherited:
            if address.fd == listener.socket.fileno() or _is_same(address, listener.address):
                return listener
        return None

    def _with_hint(self, error: CommandError, address: Address) -> CommandError:
        """Where an inherited socket of another host may be what is in the way."""
        for each in self._inherited:
            if address.path is None and each.address.port == address.port:
                hint = f"{each.address} was passed; bind that, or {by_number(each.socket)}"
                return CommandError(f"{error} ({hint})", error.exit_code)
        return error

    def of(self, group: ProcessGroup) -> list[Listener]:
        return [self._open[address] for address in group.binds]

    def addresses_of(self, group: ProcessGroup) -> list[Address]:
        """With their real ports; none once they are closed."""
        return [self._open[each].address for each in group.binds if each in self._open]

    def addresses(self) -> set[Address]:
        return set(self._open)

    def stop_queueing(self, addresses: Iterable[Address]) -> None:
        """Lets no new connection into the accept queues, so that workers can empty them before
        they close. An inherited socket goes on: whoever serves it next finds them in the queue."""
        for address in self._owned.intersection(addresses):
            if address.path is not None:
                self._remove_file(address)
            else:
                with contextlib.suppress(OSError):
                    _drop_syn(self._open[address].socket)

    def close(self, addresses: Iterable[Address]) -> None:
        """Closes the supervisor's descriptors; workers may go on with theirs."""
        for address in set(addresses):
            listener = self._open.pop(address)
            if address not in self._owned:
                continue
            self._owned.remove(address)
            self._remove_file(address)
            listener.socket.close()

    def shut_down(self) -> None:
        """Closes all at the end, even if a process that an application forked holds them."""
        for address in self._owned:
            with contextlib.suppress(OSError):
                self._open[address].socket.shutdown(socket.SHUT_RDWR)
        self.close(self.addresses())

    def _remove_file(self, address: Address) -> None:
        file = self._files.pop(address, None)
        if file is not None:
            file.remove()


def _drop_syn(listener: socket.socket) -> None:
    code = array("B", b"".join(struct.pack("HBBI", *each) for each in DROP_SYN))
    program = struct.pack("HP", len(DROP_SYN), code.buffer_info()[0])
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def by_number(listener: socket.socket) -> Address:
    """The address of a socket that is inherited."""
    return Address("localhost", 0, fd=listener.fileno())


def _address_of(listener: socket.socket) -> Address:
    place = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        # An abstract name is bytes that begin with a NUL, which systemd writes as @.
        return Address("localhost", 80, os.fsdecode(place).replace("\0", "@"))
    return Address(place[0], place[1])


def _is_same(wanted: Address, own: Address) -> bool:
    if wanted.path is not None or own.path is not None:
        return wanted.path == own.path
    if wanted.fd is not None or wanted.port != own.port:
        return False
    with contextlib.suppress(OSError):
        places = socket.getaddrinfo(
            wanted.host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return any(place[4][0] == own.host for place in places)
    return False


def inherited_from_systemd() -> list[socket.socket]:
    """The sockets of sd_listen_fds(3); forgets them in the environment, so that no child takes
    them for its own. To be called before this process opens anything that it might take for one of
    them. Raises `CommandError` if one cannot be listened on."""
    count, pid = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    return [_take_over(fd, count) for fd in range(3, 3 + int(count))]


def _take_over(fd: int, count: str) -> socket.socket:
    place = f"LISTEN_FDS={count}: descriptor {fd}"
    try:
        os.set_inheritable(fd, False)
        listener = socket.socket(fileno=fd)
    except (OSError, OverflowError) as error:
        reason = reason_of(error)
        raise CommandError(f"{place}: {reason}", exit_code=2) from None
    is_stream = listener.type == socket.SOCK_STREAM
    if not is_stream or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.detach()
        raise CommandError(f"{place}: it is no stream socket that listens", exit_code=2)
    if listener.family != socket.AF_UNIX:
        make_prompt(listener)
    return listener
