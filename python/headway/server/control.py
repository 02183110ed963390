"""The control socket between the supervisor and one of its processes: one JSON object per datagram.

It is a SOCK_SEQPACKET pair, so either side notices at once that the other one has gone. The
supervisor never waits for it. A datagram of a process is what an application wrote, if it likes:
the supervisor's `messages` checks each one. This module knows the form of messages and not their
contents:

to a process    its task, as the first message (see `server.task.Task`), {"command": "serve"},
                {"command": "retire", "reason", "detail"}, {"command": "count"},
                {"command": "set gil", "policy", "switch_interval_s"},
                {"command": "block", "action": "begin", "end" or "read", "path"},
                and to a template {"command": "fork"} with a descriptor
from a process  {"event": "started"} from a forked process, whose pid the kernel adds,
                {"event": "ready", "switch_interval_s"},
                {"event": "gil", "enabled", "undeclared"} at the start, and without a GIL for each
                imported module that does not declare that it can run without one,
                {"event": "files", "states"},
                {"event": "failed", "exit_code", "message", "details"},
                {"event": "limit", "reason", "detail"}, also from native threads,
                {"event": "requests", "count", "interpreters"} as the answer to "count",
                {"event": "block", "errors", "cpu_ns", "response"} when a block is read,
                {"event": "reporting", "started"}: it has reported its start to its recorder,
                {"event": "reported"}: it has reported its end,
                {"event": "closed"}: it has emptied the accept queues and closed its listeners,
                {"event": "stopped"}: no request is in flight any more
"""

from __future__ import annotations

import json
import os
import socket
import struct
from array import array
from typing import Any, NamedTuple

# Room for the paths of all files that an application imports, and far below the kernel's buffers.
MAX_DATAGRAM_BYTES = 131_072

# Pid, uid and gid: unix(7).
UCRED = struct.Struct("3i")

Message = dict[str, Any]


class Gone(Exception):
    """The other side has closed, or its process has ended."""


class Datagram(NamedTuple):
    data: bytes
    # The sender's process id from the kernel; 0 unless `ask_for_pids` was called before.
    pid: int
    fds: list[int]


class Control:
    """One end of the socket pair. The creator of an end closes it."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: Message, *, wait: bool = True, fds: tuple[int, ...] = ()) -> bool:
        """Sends a message. Returns false if the other side has gone, if it does not read and `wait`
        is false, or if the message is too long."""
        flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
        # socket.send_fds and socket.recv_fds ignore the flags, so the code does not use them.
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        data = json.dumps(message).encode()
        if len(data) > MAX_DATAGRAM_BYTES:
            return False
        try:
            self.socket.sendmsg([data], rights, flags)
        except OSError:
            return False
        return True

    def receive(self, *, wait: bool = True) -> Message | None:
        """The next message. `None` if there is none yet, or if a datagram is not a message. Raises
        `Gone`."""
        return self.receive_with_fds(0, wait=wait)[0]

    def receive_with_fds(
        self, max_fds: int, *, wait: bool = True
    ) -> tuple[Message | None, list[int]]:
        """The next message and at most `max_fds` descriptors, which the caller closes."""
        datagram = self.receive_datagram(max_fds, wait=wait)
        if datagram is None:
            return None, []
        try:
            message = json.loads(datagram.data)
        except (ValueError, RecursionError):
            message = None
        return message if isinstance(message, dict) else None, datagram.fds

    def receive_datagram(self, max_fds: int = 0, *, wait: bool = True) -> Datagram | None:
        """The next datagram; `None` if there is none yet. Closes the descriptors beyond `max_fds`:
        whoever can send can send some with each datagram. Raises `Gone`."""
        flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
        size = socket.CMSG_SPACE(4 * max_fds) + socket.CMSG_SPACE(UCRED.size)
        try:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(MAX_DATAGRAM_BYTES, size, flags)
            except ConnectionResetError:
                # The other side has ended without reading everything. The kernel reports that once,
                # before the messages that the other side has sent.
                data, ancillary, _, _ = self.socket.recvmsg(MAX_DATAGRAM_BYTES, size, flags)
        except BlockingIOError:
            return None
        except OSError:
            raise Gone from None
        pid, fds = 0, array("i")
        for _, kind, raw in ancillary:
            if kind == socket.SCM_RIGHTS:
                # The room for credentials holds descriptors too, and may end within one.
                fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
            elif kind == socket.SCM_CREDENTIALS:
                pid = UCRED.unpack(raw)[0]
        kept = max_fds if data else 0
        for fd in fds[kept:]:
            os.close(fd)
        if not data:
            raise Gone
        return Datagram(data, pid, list(fds[:kept]))

    def ask_for_pids(self) -> None:
        """Makes the kernel add the sender's process id to each datagram, so that no process can
        pretend to be another one."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def close(self) -> None:
        self.socket.close()


def open_pair() -> tuple[Control, Control]:
    """Two ends; neither is inherited by programs that this process starts."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Control(ours), Control(theirs)
