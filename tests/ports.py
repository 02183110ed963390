"""Ports for servers that cannot choose one by themselves and tell it."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """As many different ports, free at this moment. One that is closed before the next is asked for
    may be given twice."""
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in listeners]


def free_port() -> int:
    (port,) = free_ports(1)
    return port
