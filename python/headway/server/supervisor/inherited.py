"""Descriptors that this process inherits: stdin, stdout and stderr, and the sockets that a service
manager opened and passes by the protocol of sd_listen_fds(3)."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from io import FileIO, TextIOWrapper

from headway.address import Address
from headway.errors import CommandError, reason_of
from headway.server.binding import make_prompt


def open_standard_streams() -> None:
    """Opens /dev/null as each of descriptors 0, 1 and 2 that is closed, so that no other file gets
    its number. Raises `CommandError`."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if _is_open(fd):
            continue
        try:
            # open() returns the lowest free descriptor, which is `fd`.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        except OSError as error:
            raise CommandError(f"{os.devnull}, for {name}: {reason_of(error)}") from None
        # Python sets the stream to None if its descriptor was closed at startup. The descriptor may
        # refer to another file later (`--error-log`).
        raw = FileIO(fd, "w" if fd else "r", closefd=False)
        setattr(sys, name, TextIOWrapper(raw, errors="backslashreplace", line_buffering=True))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def inherited_from_systemd() -> list[socket.socket]:
    """The sockets of sd_listen_fds(3). Removes the variables from the environment, so that no child
    uses these sockets as its own. Must be called before this process opens a descriptor that it
    could mistake for one of them. Raises `CommandError` if a descriptor is no listening stream
    socket."""
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


def by_number(listener: socket.socket) -> Address:
    """The address that names an inherited socket by its descriptor."""
    return Address("localhost", 0, fd=listener.fileno())


def address_of(listener: socket.socket) -> Address:
    place = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        # An abstract socket's name begins with a NUL byte, which systemd writes as @.
        return Address("localhost", 80, os.fsdecode(place).replace("\0", "@"))
    return Address(place[0], place[1])


def is_same(wanted: Address, own: Address) -> bool:
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
