"""Where the server listens: parses `--bind` and opens the socket."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import NamedTuple

from headway.errors import CommandError

BACKLOG = 1024


class Address(NamedTuple):
    """A place to listen: `path` for a Unix socket, else `host` and `port` (0: any free one)."""

    host: str
    port: int
    path: str | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parses `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`; raises `ValueError` that says what is
    allowed."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise ValueError("unix: needs a path, such as unix:/run/shop.sock")
        return Address("localhost", 80, path)
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_host = host != "" and not set("[]") & set(host)
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535
    if not colon or not is_host or not is_port:
        raise ValueError("it must be HOST:PORT with a port from 0 to 65535, or unix:PATH")
    return Address(host, int(port))


def bind(address: Address) -> tuple[socket.socket, Address]:
    """A socket bound to the address but not listening yet, and the address with its real port.

    Raises `CommandError` with exit code 2 if that cannot be had.
    """
    try:
        return _bind_unix(address) if address.path is not None else _bind_tcp(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CommandError(f"--bind {address}: {reason.lower()}", exit_code=2) from None


def _bind_tcp(address: Address) -> tuple[socket.socket, Address]:
    # The first answer, as browsers take it; several need several listeners.
    family, kind, protocol, _, place = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by accepted sockets: a response is one send, so nothing is gained by waiting.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(place)
    except OSError:
        listener.close()
        raise
    return listener, address._replace(port=listener.getsockname()[1])


def _bind_unix(address: Address) -> tuple[socket.socket, Address]:
    assert address.path is not None
    _remove_stale(address.path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address.path)
    except OSError:
        listener.close()
        raise
    return listener, address


def _remove_stale(path: str) -> None:
    """Removes the socket file of a server that is gone; leaves anything else, and then binding
    fails with "address already in use"."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
