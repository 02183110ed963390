"""The server's status, its processes and their deaths, as a JSON document and as text.

The document has `pid`, `state`, `since` (seconds since 1970), `generation` and `groups`. A group
has `name`, `addresses`, `processes` and `deaths`. A process has:

- `number`, null for a template, `pid`, `state`, `since` and `generation`;
- `gil`, which is "on", "off", or null if the process did not report it;
- `undeclared`, the modules that it imported without a GIL and that do not declare that they can
  run so;
- `requests`, null if the process did not report it;
- `interpreters`, the rows of its sub-interpreters if it has any: `name`, `requests`, and `made`,
  how many interpreters were created so far.

`deaths` has `count`, `by_reason`, and `last` with `reason`, `pid` and `time`.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from headway.address import Address
from headway.json_check import NUMBER, find_field_problem
from headway.server.binding import bind
from headway.server.socket_file import Access, SocketFile
from headway.server.supervisor.deaths import Deaths
from headway.server.supervisor.process import Process

SEND_BUFFER_BYTES = 1_048_576
GIL_STATES = {True: "on", False: "off", None: None}

DOCUMENT_FIELDS: dict[str, tuple[type, ...]] = {
    "pid": (int,),
    "state": (str,),
    "since": NUMBER,
    "generation": (int,),
    "groups": (list,),
}
GROUP_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "addresses": (list,),
    "processes": (list,),
    "deaths": (dict,),
}
PROCESS_FIELDS: dict[str, tuple[type, ...]] = {
    "number": (int, type(None)),
    "pid": (int, type(None)),
    "state": (str,),
    "since": NUMBER,
    "generation": (int,),
    "gil": (str, type(None)),
    "undeclared": (list,),
    "requests": (int, type(None)),
    "interpreters": (list,),
}
INTERPRETER_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "requests": (int,),
    "made": (int,),
}
DEATHS_FIELDS: dict[str, tuple[type, ...]] = {
    "count": (int,),
    "by_reason": (dict,),
    "last": (dict, type(None)),
}
LAST_DEATH_FIELDS: dict[str, tuple[type, ...]] = {"reason": (str,), "pid": (int,), "time": NUMBER}


class StatusSocket:
    """A UNIX socket that sends the document to each client that connects, and closes the
    connection."""

    def __init__(self, path: str) -> None:
        """Raises `CommandError`."""
        address = Address("localhost", 80, path)
        self._listener = bind(address, access=Access(0o600), option="--status-socket").socket
        self._file = SocketFile(path)
        self._listener.setblocking(False)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> Callable[[dict[str, Any]], None]:
        """Accepts a client and returns a function that sends it the document."""
        try:
            client, _ = self._listener.accept()
        except OSError:
            # The client has gone, or no file descriptor is free.
            return lambda _: None
        return partial(_answer, client)

    def close(self) -> None:
        self._file.remove()
        self._listener.close()


def _answer(client: socket.socket, document: dict[str, Any]) -> None:
    """Sends the document without blocking: what does not fit into the socket's buffer is lost."""
    with client, contextlib.suppress(OSError):
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        client.sendall(json.dumps(document).encode() + b"\n")


def of_process(process: Process) -> dict[str, Any]:
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


def of_deaths(deaths: Deaths) -> dict[str, Any]:
    return {
        "count": sum(deaths.by_reason.values()),
        "by_reason": dict(deaths.by_reason),
        "last": deaths.last,
    }


def find_problem(document: Any) -> str:
    """Describes the first value that `draw` needs and that is missing or invalid in `document`,
    which may be any JSON value; "" if there is none."""
    if not isinstance(document, dict):
        return f"the document is {document!r:.40}, and must be an object"
    return next(_find_problems(document), "")


def _find_problems(document: dict[str, Any]) -> Iterator[str]:
    """Yields problems. Each check relies on the ones before it, so only the first problem may be
    consumed."""
    yield from _check(document, DOCUMENT_FIELDS, "")
    for index, group in enumerate(document["groups"]):
        place = f"groups[{index}]."
        yield from _check(group, GROUP_FIELDS, place)
        addresses = {f"addresses[{i}]": each for i, each in enumerate(group["addresses"])}
        yield from _check(addresses, dict.fromkeys(addresses, (str,)), place)
        for number, process in enumerate(group["processes"]):
            at = f"{place}processes[{number}]."
            yield from _check(process, PROCESS_FIELDS, at)
            modules = {f"undeclared[{i}]": each for i, each in enumerate(process["undeclared"])}
            yield from _check(modules, dict.fromkeys(modules, (str,)), at)
            for row, interpreter in enumerate(process["interpreters"]):
                yield from _check(interpreter, INTERPRETER_FIELDS, f"{at}interpreters[{row}].")
        deaths = group["deaths"]
        place += "deaths."
        yield from _check(deaths, DEATHS_FIELDS, place)
        counts = deaths["by_reason"]
        yield from _check(counts, dict.fromkeys(counts, (int,)), f"{place}by_reason.")
        if deaths["last"] is not None:
            yield from _check(deaths["last"], LAST_DEATH_FIELDS, f"{place}last.")


def _check(row: Any, fields: dict[str, tuple[type, ...]], place: str) -> Iterator[str]:
    if problem := find_field_problem(row, fields, place):
        yield problem
    for name in fields:
        if isinstance(row[name], float) and not math.isfinite(row[name]):
            yield f"{place}{name} is {row[name]}, and must be a number"


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


def _of_interpreter(row: dict[str, Any]) -> str:
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
