"""The control socket between the supervisor and one of its processes: one JSON object per datagram.

It is a SOCK_SEQPACKET pair, so either side notices at once that the other one has gone. The
supervisor never waits for it. This module knows the form of messages and not their contents:

to a process    its task, as the first message (see `worker.Task`), {"command": "serve"},
                {"command": "retire", "reason", "detail"}, {"command": "count"},
                {"command": "set gil", "policy", "switch_interval_s"},
                {"command": "block", "action": "begin", "end" or "read", "path"},
                and to a template {"command": "fork"} with a descriptor
from a process  {"event": "started"} from a forked process,
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
import socket
import struct
from array import array
from typing import Any

# Room for the paths of all files that an application imports, and far below the kernel's buffers.
MAX_DATAGRAM_BYTES = 131_072

# Pid, uid and gid: unix(7).
UCRED = struct.Struct("3i")

Message = dict[str, Any]


class Gone(Exception):
    """The other side has closed, or its process has ended."""


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
        """The next message. `None` if there is none yet, or if a datagram is not a message: an
        application can write to any descriptor of its process. Raises `Gone`."""
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
        """Makes the kernel add the sender's process id to each message, as `pid`, so that no
        process can pretend to be another one."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def close(self) -> None:
        self.socket.close()


def open_pair() -> tuple[Control, Control]:
    """Two ends; neither is inherited by programs that this process starts."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Control(ours), Control(theirs)
