"""Who is alive, why the last one died, and how often: as one JSON document, and as text.

The document has `pid`, `state`, `since` (seconds since 1970), `generation`, and for each of
`groups`: `name`, `addresses`, `processes` (`number`, null for a template; `pid`, `state`, `since`,
`generation`) and `deaths` (`count`, `by_reason`, `last` with `reason`, `pid`, `time`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any

from headway.server.binding import Address, bind
from headway.server.deaths import Deaths
from headway.server.process import Process

SEND_BUFFER_BYTES = 1_048_576


class StatusSocket:
    """A UNIX socket that hands the document to whoever connects, and closes."""

    def __init__(self, path: str) -> None:
        """Raises `CommandError`."""
        self._path = path
        address = Address("localhost", 80, path)
        self._listener = bind(address, mode=0o600, option="--status-socket").socket
        self._listener.setblocking(False)

    def fileno(self) -> int:
        return self._listener.fileno()

    def answer(self, document: dict[str, Any]) -> None:
        """Never waits: what does not fit into the socket's buffer is lost."""
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            with client:
                client.setblocking(False)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                client.sendall(json.dumps(document).encode() + b"\n")

    def close(self) -> None:
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def of_process(process: Process) -> dict[str, Any]:
    return {
        "number": None if process.is_template else process.number,
        "pid": process.pid or None,
        "state": process.state.value,
        "since": process.since,
        "generation": process.generation,
    }


def of_deaths(deaths: Deaths) -> dict[str, Any]:
    return {
        "count": sum(deaths.by_reason.values()),
        "by_reason": dict(deaths.by_reason),
        "last": deaths.last,
    }


def draw(document: dict[str, Any]) -> str:
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
            lines.append(
                f"  {what:<12} pid {each['pid'] or '?':<8} {each['state']:<9} "
                f"for {_age(now - each['since'])}, generation {each['generation']}"
            )
        deaths = group["deaths"]
        if deaths["count"]:
            reasons = sorted(deaths["by_reason"].items(), key=lambda each: -each[1])
            told = ", ".join(f"{reason} {count}" for reason, count in reasons)
            last = deaths["last"]
            lines.append(
                f"  ended: {told}; the last was pid {last['pid'] or '?'} "
                f"({last['reason']}), {_age(now - last['time'])} ago"
            )
    return "\n".join(lines) + "\n"


def _age(seconds: float) -> str:
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
