"""The file of a UNIX socket: its permissions, its owner, and its removal.

Knows nothing of the protocol behind the socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import NamedTuple

from headway.errors import reason_of


class Access(NamedTuple):
    """The permission bits and the owner of a file; `None` keeps what the system gives it."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


class SocketFile:
    """The file of a UNIX socket that this process has bound. If another server binds the name anew,
    the file is no longer ours to remove. Remove it before the socket is closed: afterwards its
    inode number may be used again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity = _identity_of(path)

    def is_there(self) -> bool:
        """Whether the name still leads to our socket."""
        return self._identity is not None and _identity_of(self._path) == self._identity

    def remove(self) -> None:
        if self.is_there():
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def _identity_of(path: str) -> tuple[int, int] | None:
    """The device and inode at the path; `None` if there is no file."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def bind_unix(path: str, access: Access) -> socket.socket:
    """Binds a socket to the path. Clients cannot connect before it listens. Raises `OSError`."""
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The umask gives the file its permissions as it is created, so it never has wider ones.
    umask = None if access.mode is None else os.umask(~access.mode & 0o777)
    try:
        listener.bind(path)
    except BaseException:
        listener.close()
        raise
    finally:
        if umask is not None:
            os.umask(umask)
    if access.uid is not None or access.gid is not None:
        try:
            _give(path, access)
        except BaseException:
            SocketFile(path).remove()
            listener.close()
            raise
    return listener


def _give(path: str, access: Access) -> None:
    """Gives the file to its owner, through a descriptor: a user who may write to its directory may
    have put another file in its place, and the name would then change the owner of that file."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISSOCK(found.st_mode) or found.st_nlink != 1:
            raise OSError("it is no longer the socket that was bound")
        owner = {"user": access.uid, "group": access.gid}
        try:
            # fchown(2) refuses a descriptor that was opened with O_PATH.
            os.chown(f"/proc/self/fd/{fd}", *(-1 if n is None else n for n in owner.values()))
        except OSError as error:
            whom = " and ".join(f"{kind} {n}" for kind, n in owner.items() if n is not None)
            raise OSError(f"it cannot be given to {whom}: {reason_of(error)}") from None
    finally:
        os.close(fd)


def _remove_stale(path: str) -> None:
    """Removes the socket file of a server that is gone; leaves anything else, and then binding
    fails with "address already in use"."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except BlockingIOError:
                # The queue of the socket is full, so a server is listening.
                pass
            except ConnectionRefusedError:
                os.unlink(path)
