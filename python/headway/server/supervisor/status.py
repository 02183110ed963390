"""The server's status: the socket that sends the document, its parts, and the document as text."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import NamedTuple

from headway.address import Address
from headway.server.binding import bind
from headway.server.socket_file import Access, SocketFile
from headway.server.supervisor.deaths import Deaths
from headway.server.supervisor.process import Process
from headway.server.supervisor.status_document import (
    DeathsStatus,
    InterpreterStatus,
    ProcessStatus,
    Status,
)

SEND_BUFFER_BYTES = 1_048_576
# An address in the abstract namespace (unix(7)). A client that only reads status has none, and the
# server must know which kind it has before the client has sent anything.
TUNE_NAME = b"\0headway-tune-"
GIL_STATES = {True: "on", False: "off", None: None}


class StatusClient(NamedTuple):
    """A client that has connected: it gets the document, unless it is `headway tune`."""

    socket: socket.socket
    tunes: bool

    def answer(self, document: Status) -> None:
        """Sends the document without blocking: what does not fit into the socket's buffer is lost.
        Closes the connection."""
        with self.socket as client, contextlib.suppress(OSError):
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            client.sendall(json.dumps(document).encode() + b"\n")


class StatusSocket:
    """A UNIX socket that sends the document to each client that connects, and closes the
    connection. A client whose own address begins with TUNE_NAME stays connected (`tuning`)."""

    def __init__(self, path: str) -> None:
        """Raises `CommandError`."""
        address = Address("localhost", 80, path)
        self._listener = bind(address, access=Access(0o600), option="--status-socket").socket
        self._file = SocketFile(path)
        self._listener.setblocking(False)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> StatusClient | None:
        """Accepts a client; returns None if there is none."""
        try:
            client, name = self._listener.accept()
        except OSError:
            # The client has gone, or no file descriptor is free.
            return None
        return StatusClient(client, isinstance(name, bytes) and name.startswith(TUNE_NAME))

    def close(self) -> None:
        self._file.remove()
        self._listener.close()


def of_process(process: Process) -> ProcessStatus:
    return {
        "number": None if process.is_template else process.number,
        "pid": process.pid or None,
        "state": process.state.value if process.stopped_by is None else "stopped",
        "since": process.since,
        "generation": process.generation,
        "gil": GIL_STATES[process.gil_enabled],
        "undeclared": process.undeclared,
        "requests": process.requests,
        "interpreters": process.interpreters,
    }


def of_deaths(deaths: Deaths) -> DeathsStatus:
    return {
        "count": sum(deaths.by_reason.values()),
        "by_reason": dict(deaths.by_reason),
        "last": deaths.last,
    }


def draw(document: Status) -> str:
    """The document as a table; text with a newline at its end."""
    now = time.time()
    lines = [
        f"pid {document['pid']}, {document['state']} for {_age(now - document['since'])}, "
        f"generation {document['generation']}"
    ]
    for group in document["groups"]:
        lines += ["", f"{group['name']} on {', '.join(group['addresses'])}"]
        for each in group["processes"]:
            what = "template" if each["number"] is None else f"process {each['number']}"
            line = (
                f"  {what:<12} pid {each['pid'] or '?':<8} {each['state']:<9} "
                f"for {_age(now - each['since'])}, generation {each['generation']}"
            )
            if each["gil"] is not None:
                line += f", GIL {each['gil']}"
            if each["requests"] is not None:
                line += f", {each['requests']} request{_s(each['requests'])}"
            lines.append(line)
            lines += [f"    {_of_interpreter(row)}" for row in each["interpreters"]]
            if each["undeclared"]:
                modules = ", ".join(each["undeclared"])
                lines.append(f"    without a GIL, and not declared to be able to: {modules}")
        deaths = group["deaths"]
        if last := deaths["last"]:
            reasons = sorted(deaths["by_reason"].items(), key=lambda each: -each[1])
            told = ", ".join(f"{reason} {count}" for reason, count in reasons)
            lines.append(
                f"  ended: {told}; the last was pid {last['pid'] or '?'} "
                f"({last['reason']}), {_age(now - last['time'])} ago"
            )
    return "\n".join(lines) + "\n"


def _of_interpreter(row: InterpreterStatus) -> str:
    said = f"interpreter {row['name']}: {row['requests']} request{_s(row['requests'])}"
    if row["made"] == 0:
        return f"{said}, not made yet"
    recycled = row["made"] - 1
    return f"{said}, recycled {recycled} time{_s(recycled)}" if recycled else said


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _age(seconds: float) -> str:
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
