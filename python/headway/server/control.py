"""The control socket between the supervisor and a process of its: one JSON object per datagram.

A SOCK_SEQPACKET pair, so that either side learns at once that the other has gone. The supervisor
never waits for it. Knows what a message looks like, not what is in it; those that there are:

to a process    its task, once, as the first (see `worker.Task`), {"command": "serve"},
                {"command": "retire", "reason", "detail"}, {"command": "count"},
                {"command": "set gil", "policy", "switch_interval_s"},
                {"command": "block", "action": "begin", "end" or "read", "path"},
                and to a template {"command": "fork"} with a descriptor
from a process  {"event": "started"} by one that was forked,
                {"event": "ready", "switch_interval_s"},
                {"event": "gil", "enabled", "undeclared"} at the start, and for each module that
                does not declare that it can run without a GIL where there is none,
                {"event": "files", "states"},
                {"event": "failed", "exit_code", "message", "details"},
                {"event": "limit", "reason", "detail"} (native threads send this too),
                {"event": "requests", "count", "interpreters"} when it was told to count,
                {"event": "block", "errors", "cpu_ns", "response"} when a block is read,
                {"event": "reporting", "started"}: it has told its recorder that it began then,
                {"event": "reported"}: and that it ends,
                {"event": "closed"}: its listening sockets, after it emptied the accept queues;
                {"event": "stopped"}: no request is under way any more
"""

from __future__ import annotations

import json
import socket
import struct
from array import array
from typing import Any

# Room for every path that an application imported; far below what the kernel's buffers hold.
MAX_DATAGRAM_BYTES = 131_072

# Pid, uid and gid: unix(7).
UCRED = struct.Struct("3i")

Message = dict[str, Any]


class Gone(Exception):
    """The other side has closed, or its process has ended."""


class Control:
    """One end. Whoever makes it closes it."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: Message, *, wait: bool = True, fds: tuple[int, ...] = ()) -> bool:
        """False if the other side has gone, or does not read and `wait` is false; or if the message
        is too long."""
        flags = socket.MSG_NOSIGNAL | (0 if wait else socket.MSG_DONTWAIT)
        # Not socket.send_fds and recv_fds: they ignore the flags.
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
        """The next message; `None` if there is none yet, or it is not one: an application can
        write to any descriptor of its process. Raises `Gone`."""
        return self.receive_with_fds(0, wait=wait)[0]

    def receive_with_fds(
        self, max_fds: int, *, wait: bool = True
    ) -> tuple[Message | None, list[int]]:
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
            return None, []
        except OSError:
            raise Gone from None
        by_kind = {kind: raw for _, kind, raw in ancillary}
        fds = list(array("i", by_kind.get(socket.SCM_RIGHTS, b"")))
        if not data:
            raise Gone
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            return None, fds
        if not isinstance(message, dict):
            return None, fds
        if socket.SCM_CREDENTIALS in by_kind:
            message["pid"] = UCRED.unpack(by_kind[socket.SCM_CREDENTIALS])[0]
        return message, fds

    def ask_for_pids(self) -> None:
        """Each message that comes has the `pid` of its sender then, by the kernel's word: a
        process must not have the supervisor believe that it is another."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def close(self) -> None:
        self.socket.close()


def open_pair() -> tuple[Control, Control]:
    """Two ends; neither is inherited by programs that this process starts."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Control(ours), Control(theirs)
