"""Opens the sockets that a server listens on."""

from __future__ import annotations

import socket
from typing import NamedTuple

from headway.address import Address
from headway.errors import CommandError, reason_of
from headway.server.socket_file import Access, SocketFile, bind_unix

DEFAULT_BACKLOG = 1024
AS_USUAL = Access()


class Listener(NamedTuple):
    """A socket that listens, and its address with the real port."""

    socket: socket.socket
    address: Address


def bind(
    address: Address,
    backlog: int = DEFAULT_BACKLOG,
    access: Access = AS_USUAL,
    option: str = "bind",
) -> Listener:
    """Listens at the address. `access` determines who may connect to a UNIX socket. `option` names
    the option that gave the address, and its place.

    Raises `CommandError` with exit code 2 if the address is not available.
    """
    if address.fd is not None:
        raise CommandError(
            f"{option} {address}: no such socket was passed (LISTEN_FDS, see sd_listen_fds(3))",
            exit_code=2,
        )
    try:
        if address.path is not None:
            listener = Listener(bind_unix(address.path, access), address)
        else:
            listener = _bind_tcp(address)
        try:
            listener.socket.listen(backlog)
        except BaseException:
            if address.path is not None:
                SocketFile(address.path).remove()
            listener.socket.close()
            raise
    except OSError as error:
        raise CommandError(f"{option} {address}: {reason_of(error)}", exit_code=2) from None
    return listener


def _bind_tcp(address: Address) -> Listener:
    # The first address, which browsers use too. Several addresses need several listeners.
    family, kind, protocol, _, place = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        make_prompt(listener)
        listener.bind(place)
    except OSError:
        listener.close()
        raise
    return Listener(listener, address._replace(port=listener.getsockname()[1]))


def make_prompt(listener: socket.socket) -> None:
    """Sets TCP_NODELAY, which accepted sockets inherit. A response is one send, so a delay gains
    nothing."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
