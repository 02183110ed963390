"""The datagram socket that processes report to."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat

from headway.errors import CommandError, reason_of
from headway.server.socket_file import SocketFile

# More than a thousand processes send at once. The system may allow less.
RECEIVE_BUFFER_BYTES = 16 * 1024 * 1024
# Missing in the socket module.
SO_RCVBUFFORCE = 33


class DatagramReceiver:
    """The bound socket and its file."""

    def __init__(self, path: str, mode: int, group: str | None) -> None:
        """Binds the socket. Raises `CommandError` with exit code 2 if that fails."""
        place = f"--listen unix:{path}"
        gid = -1 if group is None else group_id(group)
        try:
            remove_stale(path)
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                # The umask creates the file without permissions, so that no process can send before
                # the permissions are set.
                umask = os.umask(0o777)
                try:
                    self.socket.bind(path)
                finally:
                    os.umask(umask)
                self._file = SocketFile(path)
                self._prepare()
                if gid >= 0:
                    os.chown(path, -1, gid)
                os.chmod(path, mode)
            except BaseException:
                self.socket.close()
                raise
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = "somebody listens there already; is another recorder running?"
            else:
                reason = reason_of(error)
            raise CommandError(f"{place}: {reason}", exit_code=2) from None

    def _prepare(self) -> None:
        self.socket.setblocking(False)
        # The kernel then attaches the credentials of the sender.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        for option in (SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                self.socket.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER_BYTES)
                break
            except PermissionError:
                continue

    def close(self) -> None:
        self._file.remove()
        self.socket.close()


def group_id(name: str) -> int:
    if name.isascii() and name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise CommandError(f"--socket-group {name}: there is no such group", exit_code=2) from None


def remove_stale(path: str) -> None:
    """Removes the socket file of a recorder that has ended. Leaves a socket that is in use, so that
    binding fails with "address already in use". Raises OSError if the file is not a socket."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "there is a file, and it is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            except OSError as error:
                # A socket of another type belongs to another server and must stay.
                if error.errno != errno.EPROTOTYPE:
                    raise
