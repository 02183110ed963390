"""The messages of processes as typed values. An application can write anything to the control
socket of its process, so each message is parsed whole before anything acts on it: types, keys,
signs and sizes are checked. The module `control` has the table of messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from headway.server.control import Datagram
from headway.server.file_state import FileState
from headway.server.supervisor.status_document import InterpreterStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.report.distributions import Raw

MAX_COUNT = 2**64 - 1
# The seconds since 1970 of the year 9999.
MAX_SECONDS = 253_402_300_799.0
# mod_wsgi's names, as crates/server and the worker send them.
LIMITS = (
    "maximum_requests",
    "inactivity_timeout",
    "request_timeout",
    "deadlock_timeout",
    "cpu_time_limit",
)
MAX_NAME = 1000
MAX_DETAIL = 4096
MAX_PATH = 4096
# Above `ending.MAX_DETAILS`.
MAX_TEXT = 40_000
# The bounds of the lists in one message.
MAX_NAMES = 5000
MAX_ROWS = 5000
MAX_FILES = 1000
MAX_BUCKETS = 2000


class Malformed(Exception):
    """A datagram that is no message. The text has one bounded line, which names the field, what was
    found and what is allowed."""


class Started(NamedTuple):
    # From the kernel.
    pid: int


class Ready(NamedTuple):
    """`None` from a template."""

    switch_interval_s: float | None


class Gil(NamedTuple):
    enabled: bool
    undeclared: list[str]


class Files(NamedTuple):
    states: dict[str, FileState]


class Failed(NamedTuple):
    exit_code: int
    message: str
    # A traceback, or "".
    details: str


class Limit(NamedTuple):
    reason: str
    detail: str


class Requests(NamedTuple):
    requests: int
    interpreters: list[InterpreterStatus]


class Block(NamedTuple):
    """The answered requests of a block."""

    errors: int
    cpu_ns: int
    response: Raw


class Reporting(NamedTuple):
    started: float


class Reported(NamedTuple):
    pass


class Closed(NamedTuple):
    pass


class Stopped(NamedTuple):
    pass


Event = (
    Started
    | Ready
    | Gil
    | Files
    | Failed
    | Limit
    | Requests
    | Block
    | Reporting
    | Reported
    | Closed
    | Stopped
)


def parse(datagram: Datagram) -> Event:
    """Raises `Malformed`."""
    fields = Fields.of_json(datagram.data)
    name = fields.one_of("event", tuple(PARSERS))
    return PARSERS[name](fields, datagram.pid)


class Fields:
    """The fields of an object, which are checked as they are read."""

    def __init__(self, value: object, place: str = "") -> None:
        if type(value) is not dict:
            raise Malformed(_problem(place or "it", value, "an object"))
        self._values: dict[str, Any] = value
        self._place = place

    @classmethod
    def of_json(cls, data: bytes) -> Fields:
        try:
            return cls(json.loads(data))
        except (ValueError, RecursionError):
            raise Malformed(f"it is {_cut(data)}, and must be JSON") from None

    def has(self, key: str) -> bool:
        return key in self._values

    def value(self, key: str) -> Any:
        if key not in self._values:
            raise Malformed(f"{self._name(key)} is missing")
        return self._values[key]

    def flag(self, key: str) -> bool:
        value = self.value(key)
        if type(value) is not bool:
            raise Malformed(_problem(self._name(key), value, "a boolean"))
        return value

    def count(self, key: str, low: int = 0, high: int = MAX_COUNT) -> int:
        return _count(self.value(key), self._name(key), low, high)

    def count_or_none(self, key: str) -> int | None:
        return None if self.value(key) is None else self.count(key)

    def seconds(self, key: str) -> float:
        value = self.value(key)
        if type(value) not in (int, float) or not 0 <= value <= MAX_SECONDS:
            raise Malformed(_problem(self._name(key), value, "a number of seconds"))
        return float(value)

    def text(self, key: str, limit: int) -> str:
        """A text of any characters; what is longer than the limit is cut off."""
        value = self.value(key)
        if type(value) is not str:
            raise Malformed(_problem(self._name(key), value, "a string"))
        return value[:limit]

    def one_of(self, key: str, names: tuple[str, ...]) -> str:
        value = self.value(key)
        if type(value) is not str or value not in names:
            raise Malformed(_problem(self._name(key), value, f"one of {', '.join(names)}"))
        return value

    def text_or_none(self, key: str, limit: int) -> str | None:
        return None if self.value(key) is None else self.text(key, limit)

    def items(self, key: str, limit: int) -> list[Any]:
        value = self.value(key)
        if type(value) is not list or len(value) > limit:
            raise Malformed(_problem(self._name(key), value, f"a list of at most {limit} items"))
        return value

    def object(self, key: str) -> Fields:
        return Fields(self.value(key), self._name(key))

    def _name(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key


def _started(fields: Fields, pid: int) -> Started:
    # A pid in the message itself is worth nothing: the sender can write any.
    if pid <= 0:
        raise Malformed("started comes without the sender's pid from the kernel")
    return Started(pid)


def _ready(fields: Fields, _: int) -> Ready:
    return Ready(fields.seconds("switch_interval_s") if fields.has("switch_interval_s") else None)


def _gil(fields: Fields, _: int) -> Gil:
    names = fields.items("undeclared", MAX_NAMES)
    return Gil(fields.flag("enabled"), [_printable(each, "undeclared") for each in names])


def _files(fields: Fields, _: int) -> Files:
    states = fields.value("states")
    if type(states) is not dict or len(states) > MAX_FILES:
        raise Malformed(_problem("states", states, f"an object of at most {MAX_FILES} files"))
    return Files({_path(path): _state(state) for path, state in states.items()})


def _failed(fields: Fields, _: int) -> Failed:
    return Failed(
        fields.count("exit_code", 1, 255),
        fields.text("message", MAX_TEXT),
        fields.text("details", MAX_TEXT),
    )


def _limit(fields: Fields, _: int) -> Limit:
    detail = fields.text("detail", MAX_DETAIL) if fields.has("detail") else ""
    return Limit(fields.one_of("reason", LIMITS), detail)


def _requests(fields: Fields, _: int) -> Requests:
    rows = fields.items("interpreters", MAX_ROWS)
    return Requests(fields.count("count"), [_row(each) for each in rows])


def _row(value: object) -> InterpreterStatus:
    fields = Fields(value, "interpreters")
    return {
        "name": _printable(fields.value("name"), "interpreters.name"),
        "requests": fields.count("requests"),
        "made": fields.count("made"),
    }


def _block(fields: Fields, _: int) -> Block:
    response = fields.object("response")
    distribution = {
        "count": response.count("count"),
        "sum_ns": response.count("sum_ns"),
        "min_ns": response.count_or_none("min_ns"),
        "max_ns": response.count_or_none("max_ns"),
        "buckets": [_bucket(each) for each in response.items("buckets", MAX_BUCKETS)],
    }
    return Block(fields.count("errors"), fields.count("cpu_ns"), distribution)


def _bucket(value: object) -> tuple[int, int]:
    if type(value) is not list or len(value) != 2:
        raise Malformed(_problem("response.buckets", value, "pairs of counts"))
    bound, number = (_count(each, "response.buckets") for each in value)
    return bound, number


def _reporting(fields: Fields, _: int) -> Reporting:
    return Reporting(fields.seconds("started"))


PARSERS: dict[str, Callable[[Fields, int], Event]] = {
    "started": _started,
    "ready": _ready,
    "gil": _gil,
    "files": _files,
    "failed": _failed,
    "limit": _limit,
    "requests": _requests,
    "block": _block,
    "reporting": _reporting,
    "reported": lambda *_: Reported(),
    "closed": lambda *_: Closed(),
    "stopped": lambda *_: Stopped(),
}


def _count(value: object, place: str, low: int = 0, high: int = MAX_COUNT) -> int:
    if type(value) is not int or not low <= value <= high:
        raise Malformed(_problem(place, value, f"an integer from {low} to {high}"))
    return value


def _printable(value: object, place: str) -> str:
    """A name that terminals show: without escape sequences and without half characters."""
    if type(value) is not str or len(value) > MAX_NAME or not value.isprintable():
        allowed = f"a printable string of at most {MAX_NAME} characters"
        raise Malformed(_problem(place, value, allowed))
    return value


def _path(value: str) -> str:
    if not value.startswith("/") or len(value) > MAX_PATH or "\0" in value:
        raise Malformed(_problem("a path in states", value, "an absolute path"))
    return value


def _state(value: object) -> FileState:
    if type(value) is not list or len(value) > 3:
        raise Malformed(_problem("a state in states", value, "a list of at most 3 integers"))
    # The time of a file may be before 1970.
    return tuple(_count(each, "a state in states", -MAX_COUNT) for each in value)


def _problem(place: str, value: object, allowed: str) -> str:
    return f"{place} is {_cut(value)}, and must be {allowed}"


def _cut(value: object) -> str:
    """The value in at most some 40 characters. `repr` of a long list would take as long as the list
    is, and that of a long integer raises ValueError."""
    if type(value) is list or type(value) is dict:
        return f"{'a list' if type(value) is list else 'an object'} of {len(value)} items"
    if type(value) is int and abs(value) > MAX_COUNT:
        return "an integer of more than 64 bits"
    if isinstance(value, (str, bytes)) and len(value) > 40:
        return f"{value[:40]!a}..."
    return ascii(value)
