"""The GIL report, schema 2, as objects: a process, its GILs, its threads and their histograms.

`GilReport.decode` makes a report from parsed JSON, and rejects a value of another type with its
path. `to_dict` is the reverse. Times are in seconds, and their names end in `_s`. Null stands for
unknown values. A key that a later version adds is ignored, and one that an earlier version did not
have is null.

A report is made at the end of the user's program, so this module imports nothing: neither
`dataclasses` nor `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, ClassVar, TypeVar

    Decoder = Callable[[Any, str], Any]
    Fields = dict[str, Decoder]
    R = TypeVar("R", bound="Record")

SCHEMA = 2


class Malformed(ValueError):
    """A value of a report does not conform to schema 2. The text names the path, the value, and the
    allowed values."""


def _of(what: str, *types: type) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
            return value
        raise Malformed(f"{path} is {value!r:.40}, and must be {what}")

    return decode


def _list_of(decode_item: Decoder) -> Decoder:
    decode_list = _of("a list", list)

    def decode(value: Any, path: str) -> Any:
        items = enumerate(decode_list(value, path))
        return [decode_item(item, f"{path}[{index}]") for index, item in items]

    return decode


def _or_null(decode_value: Decoder) -> Decoder:
    return lambda value, path: None if value is None else decode_value(value, path)


def _bucket(value: Any, path: str) -> Any:
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2
    if is_pair and all(isinstance(number, (int, float)) for number in value):
        return tuple(value)
    raise Malformed(f"{path} is {value!r:.40}, and must be [seconds, count]")


_BOOLEAN = _of("true or false", bool)
_INTEGER = _of("an integer", int)
_NUMBER = _of("a number", int, float)
_TEXT = _of("a string", str)
_SECONDS_OR_NULL = _or_null(_of("a number or null", int, float))
_INTEGER_OR_NULL = _or_null(_of("an integer or null", int))


class Record:
    """An object of the report. `FIELDS` are its keys in the order of the JSON, each with the
    function that decodes its value. `ADDED` are those that the first version of the schema did not
    have. They may be null."""

    __slots__ = ()
    FIELDS: ClassVar[Fields] = {}
    ADDED: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **values: Any) -> None:
        """Raises `TypeError` unless `values` are all fields."""
        if values.keys() != self.FIELDS.keys():
            differing = sorted(values.keys() ^ self.FIELDS.keys())
            raise TypeError(f"{type(self).__name__}: fields missing or unknown: {differing}")
        for name, value in values.items():
            setattr(self, name, value)

    @classmethod
    def decode(cls: type[R], value: Any, path: str = "") -> R:
        """The object that `value`, parsed JSON, describes. Raises `Malformed`."""
        if not isinstance(value, dict):
            raise Malformed(f"{path or 'the report'} is {value!r:.40}, and must be an object")
        values = {}
        for name, decode in cls.FIELDS.items():
            place = f"{path}.{name}" if path else name
            if name in cls.ADDED:
                values[name] = _or_null(decode)(value.get(name), place)
                continue
            if name not in value:
                raise Malformed(f"{place} is missing")
            values[name] = decode(value[name], place)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The object as plain values for JSON."""
        return {name: _plain(getattr(self, name)) for name in self.FIELDS}

    def replaced(self: R, **changes: Any) -> R:
        """A copy with other values of some fields."""
        return type(self)(**{name: getattr(self, name) for name in self.FIELDS} | changes)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_dict() == self.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({fields})"


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


class Histogram(Record):
    """A histogram of durations. Number, sum and extremes are exact, percentiles are exact to a
    bucket. `buckets` are pairs of an upper bound and a number."""

    FIELDS: ClassVar[Fields] = {
        "count": _INTEGER,
        "sum_s": _NUMBER,
        **dict.fromkeys(
            ("min_s", "max_s", "p50_s", "p90_s", "p95_s", "p99_s", "p999_s"), _SECONDS_OR_NULL
        ),
        "buckets": _list_of(_bucket),
    }
    __slots__ = tuple(FIELDS)
    count: int  #: How many durations.
    sum_s: float  #: Their sum.
    min_s: float | None  #: The shortest, or null if there is none.
    max_s: float | None  #: The longest.
    p50_s: float | None  #: The median.
    p90_s: float | None  #: The 90th percentile.
    p95_s: float | None  #: The 95th percentile.
    p99_s: float | None  #: The 99th percentile.
    p999_s: float | None  #: The 99.9th percentile.
    #: Pairs of an upper bound in seconds and a number, without empty buckets.
    buckets: list[tuple[float, int]]

    def time_above_s(self, limit_s: float) -> float:
        """The sum of the durations in the buckets that end above `limit_s`."""
        total_s = sum(upper_s * count for upper_s, count in self.buckets if upper_s > limit_s)
        return min(float(total_s), float(self.sum_s))

    def time_below_s(self, limit_s: float) -> float:
        """The sum of the durations in the buckets that end at `limit_s` or below."""
        total_s = sum(upper_s * count for upper_s, count in self.buckets if upper_s <= limit_s)
        return min(float(total_s), float(self.sum_s))


_COUNTS = ("takes", "contended_takes", "voluntary_drops", "forced_drops")
_WAITED_FOR = (
    "waited_preventable_s",
    "waited_unanswered_s",
    "waited_off_core_s",
    "waited_collection_s",
)
_HISTOGRAMS: Fields = {"wait": Histogram.decode, "hold": Histogram.decode}


class GilRow(Record):
    """A GIL. `held_s`, `handoff_s` and `idle_s` add up to `wall_s`."""

    FIELDS: ClassVar[Fields] = {
        "id": _INTEGER,
        "name": _TEXT,
        "interpreters": _list_of(_INTEGER),
        "alive": _BOOLEAN,
        **dict.fromkeys(("wall_s", "held_s", "handoff_s", "idle_s"), _NUMBER),
        **dict.fromkeys(_COUNTS, _INTEGER),
        **dict.fromkeys(
            ("drop_requests", "preemptions", "anomalies", "held_at_open", "held_now"), _INTEGER
        ),
        **dict.fromkeys(("longest_wait_io_bound_s", "longest_wait_cpu_bound_s"), _SECONDS_OR_NULL),
        **_HISTOGRAMS,
    }
    __slots__ = tuple(FIELDS)
    id: int  #: The number of the GIL, to which `threads[].gil` refers.
    name: str  #: `main`, `interpreter N`, or the name that the program gave.
    interpreters: list[int]  #: The IDs of the interpreters that use this GIL.
    alive: bool  #: Whether the GIL existed at the end.
    wall_s: float  #: How long it was watched.
    held_s: float  #: The time in which a thread held it.
    handoff_s: float  #: The time from a drop to the next take while a thread waited.
    idle_s: float  #: The time from a drop to the next take while no thread waited.
    takes: int  #: How often the GIL was taken.
    contended_takes: int  #: Takes that had to wait.
    voluntary_drops: int  #: Drops without a pending drop request.
    forced_drops: int  #: Drops while a drop request was pending.
    drop_requests: int  #: Requests of waiting threads that the holder drop it.
    preemptions: int  #: Forced drops that a policy requested before the switch interval was over.
    anomalies: int  #: Events that contradicted the counters, which were corrected.
    held_at_open: int  #: 1 if it was held when watching began.
    held_now: int  #: 1 if it was held at the end.
    #: The longest wait of an I/O-bound thread; null under `interval`.
    longest_wait_io_bound_s: float | None
    #: The longest wait of a CPU-bound thread; null under `interval`.
    longest_wait_cpu_bound_s: float | None
    wait: Histogram  #: The waits of contended takes.
    hold: Histogram  #: The holds that ended in a drop.


class ThreadRow(Record):
    """A thread that used a GIL. `folded` is the number of ended threads that the row sums up; 0 for
    a single thread."""

    FIELDS: ClassVar[Fields] = {
        "native_id": _INTEGER_OR_NULL,
        "name": _TEXT,
        "gil": _INTEGER_OR_NULL,
        "alive": _BOOLEAN,
        "folded": _INTEGER,
        **dict.fromkeys(("held_s", "waited_s", "forced_waited_s"), _NUMBER),
        **dict.fromkeys(_COUNTS, _INTEGER),
        **dict.fromkeys(("forced_waits", "preemptions"), _INTEGER),
        **dict.fromkeys(_WAITED_FOR, _SECONDS_OR_NULL),
        "collections": _INTEGER_OR_NULL,
        **dict.fromkeys(("collected_s", "longest_collection_s"), _SECONDS_OR_NULL),
        "longest_unanswered_s": _SECONDS_OR_NULL,
        "cpu_in_longest_unanswered_s": _SECONDS_OR_NULL,
        "longest_unanswered_cpu_s": _SECONDS_OR_NULL,
        "unanswered_with_most_cpu_s": _SECONDS_OR_NULL,
        "holding_now_s": _SECONDS_OR_NULL,
        "waiting_now_s": _SECONDS_OR_NULL,
        **_HISTOGRAMS,
    }
    ADDED = (
        *_WAITED_FOR,
        "collections",
        "collected_s",
        "longest_collection_s",
        "cpu_in_longest_unanswered_s",
        "unanswered_with_most_cpu_s",
        "holding_now_s",
        "waiting_now_s",
    )
    __slots__ = tuple(FIELDS)
    native_id: int | None  #: The kernel's ID of the thread; null for a sum.
    name: str  #: The name of the thread, or of the threads that the row sums up.
    gil: int | None  #: The `id` of its GIL; null if that is not known.
    alive: bool  #: Whether the thread existed at the end.
    folded: int  #: How many ended threads the row sums up; 0 for a single thread.
    held_s: float  #: How long it held the GIL.
    waited_s: float  #: How long it waited for the GIL.
    forced_waited_s: float  #: How long it waited after forced drops for another take.
    takes: int  #: How often the GIL was taken.
    contended_takes: int  #: Takes that had to wait.
    voluntary_drops: int  #: Drops without a pending drop request.
    forced_drops: int  #: Drops while a drop request was pending.
    forced_waits: int  #: How often it waited after a forced drop for another take.
    preemptions: int  #: Its forced drops that a policy requested early.
    #: The part of its waits that a policy could have prevented: for work of less than a
    #: millisecond, behind computing that can be preempted.
    waited_preventable_s: float | None
    #: The part of its waits behind holders that did not answer a drop request, and ran.
    waited_unanswered_s: float | None
    #: The part of its waits behind holders that did not answer and were off the processor.
    waited_off_core_s: float | None
    #: The part of its waits behind passes of the garbage collector.
    waited_collection_s: float | None
    collections: int | None  #: Passes of the garbage collector that it ran, of 0.1 ms and more.
    collected_s: float | None  #: How long these passes took, while it held the GIL.
    longest_collection_s: float | None  #: The longest of them; null without one.
    #: The longest time from a drop request to its drop; null without one.
    longest_unanswered_s: float | None
    #: The CPU time that it used in that time; null if unknown.
    cpu_in_longest_unanswered_s: float | None
    #: The most CPU time that it used in such a time; null if unknown.
    longest_unanswered_cpu_s: float | None
    #: The time from that drop request to its drop; null if unknown.
    unanswered_with_most_cpu_s: float | None
    #: How long it had held the GIL at the end; null if it did not hold it.
    holding_now_s: float | None
    #: How long it had waited for the GIL at the end; null if it did not wait.
    waiting_now_s: float | None
    wait: Histogram  #: The waits of its contended takes.
    hold: Histogram  #: Its holds that ended in a drop.


class Machine(Record):
    """The cores that the process may use, and who used them while it was watched."""

    FIELDS: ClassVar[Fields] = {
        "cores": _INTEGER,
        **dict.fromkeys(("busy_s", "own_s", "cpu_s"), _NUMBER),
    }
    __slots__ = tuple(FIELDS)
    cores: int  #: How many cores the process may use.
    busy_s: float  #: The CPU time of all processes on these cores.
    own_s: float  #: The CPU time of this process and of its children that have ended.
    cpu_s: float  #: The CPU time of this process.


class Stopping(Record):
    """The waits of threads that stopped the world, until all other threads had stopped."""

    FIELDS: ClassVar[Fields] = {"count": _INTEGER, "sum_s": _NUMBER}
    __slots__ = tuple(FIELDS)
    count: int  #: How often a thread stopped the world.
    sum_s: float  #: How long it waited for that in all.


_PARKS: Fields = {
    "parked": Histogram.decode,
    "suspended": Histogram.decode,
    "stopping": Stopping.decode,
}


class ParkedThreadRow(Record):
    """A thread of a free-threaded build. `parked` are its waits for locks and events, `suspended`
    its waits while another thread stopped the world."""

    FIELDS: ClassVar[Fields] = {
        "native_id": _INTEGER_OR_NULL,
        "name": _TEXT,
        "alive": _BOOLEAN,
        "folded": _INTEGER,
        **_PARKS,
    }
    __slots__ = tuple(FIELDS)
    native_id: int | None  #: The kernel's ID of the thread; null for a sum.
    name: str  #: The name of the thread, or of the threads that the row sums up.
    alive: bool  #: Whether the thread existed at the end.
    folded: int  #: How many ended threads the row sums up; 0 for a single thread.
    parked: Histogram  #: Its waits for locks and events.
    suspended: Histogram  #: Its waits while another thread stopped the world.
    stopping: Stopping  #: Its waits as the thread that stopped the world.


class FreeThreading(Record):
    """The waits of a free-threaded build, in place of a GIL's counters. `cpu_s` is the CPU time of
    the process while it was watched."""

    FIELDS: ClassVar[Fields] = {
        "cpu_s": _SECONDS_OR_NULL,
        **_PARKS,
        "threads": _list_of(ParkedThreadRow.decode),
    }
    __slots__ = tuple(FIELDS)
    cpu_s: float | None  #: The CPU time of the process; null if unknown.
    parked: Histogram  #: The waits of all threads for locks and events.
    suspended: Histogram  #: The waits of all threads while another thread stopped the world.
    stopping: Stopping  #: The waits of the threads that stopped the world.
    threads: list[ParkedThreadRow]  #: A row for each thread.


class LateLine(Record):
    """A line that an event loop was late for. `line` is 0 if it is unknown."""

    FIELDS: ClassVar[Fields] = {
        "part": _TEXT,
        "function": _TEXT,
        "file": _TEXT,
        "line": _INTEGER,
        "callback": _or_null(_TEXT),
        "thread": _or_null(_TEXT),
        "late_s": _NUMBER,
        "readings": _INTEGER,
    }
    __slots__ = tuple(FIELDS)
    part: str  #: `computed`, `waited` or `blocked`: what the loop did meanwhile.
    function: str  #: The innermost function; for `waited`, that of the thread that held the GIL.
    file: str  #: Its file.
    line: int  #: The line; 0 if unknown.
    callback: str | None  #: The coroutine or callback that the loop ran; null if it is unknown.
    thread: str | None  #: The thread that held the GIL; null for the loop's own lines.
    late_s: float  #: How long late iterations took there.
    readings: int  #: How often the stack was read there.


_LOOP_PARTS = ("iteration", "computed", "waited", "blocked")


class EventLoopRow(Record):
    """An event loop: a thread that waits for events on one epoll descriptor again and again. An
    iteration lasts from the end of one wait to the begin of the next. `computed`, `waited` and
    `blocked` are its parts, and add up to it. `folded` is the number of ended loops that the row
    sums up; 0 for a single loop."""

    FIELDS: ClassVar[Fields] = {
        "native_id": _INTEGER_OR_NULL,
        "name": _TEXT,
        "alive": _BOOLEAN,
        "folded": _INTEGER,
        "polled_s": _NUMBER,
        "iterating_now_s": _SECONDS_OR_NULL,
        "mean_lag_s": _SECONDS_OR_NULL,
        "late_limit_s": _NUMBER,
        "late": _INTEGER,
        **dict.fromkeys(
            (
                "late_computed_s",
                "late_waited_s",
                "late_blocked_s",
                "late_ran_blocked_s",
                "ran_blocked_s",
            ),
            _NUMBER,
        ),
        "core_waited_s": _NUMBER,
        **dict.fromkeys(_LOOP_PARTS, Histogram.decode),
        "lines": _list_of(LateLine.decode),
    }
    __slots__ = tuple(FIELDS)
    native_id: int | None  #: The kernel's ID of the thread; null for a sum.
    name: str  #: The name of the thread.
    alive: bool  #: Whether the thread existed at the end.
    folded: int  #: How many ended loops the row sums up; 0 for a single loop.
    polled_s: float  #: How long it waited for events.
    #: How long an iteration that had not ended had lasted; null unless it was seen to be late.
    iterating_now_s: float | None
    #: How long an event that comes at a random moment waits on average for the end of an
    #: iteration; null without iterations.
    mean_lag_s: float | None
    late_limit_s: float  #: From which duration on an iteration is late.
    late: int  #: How many iterations were late.
    late_computed_s: float  #: The part of late iterations in which it held the GIL.
    late_waited_s: float  #: The part of late iterations in which it waited for the GIL.
    late_blocked_s: float  #: The rest of late iterations.
    late_ran_blocked_s: float  #: The part of `late_blocked_s` in which the thread ran.
    #: The part of `blocked` in which the thread ran, as in C code that has dropped the GIL.
    ran_blocked_s: float
    #: The part of `blocked` in which the thread waited for a core, in iterations that were read.
    core_waited_s: float
    iteration: Histogram  #: The durations of iterations.
    #: The times in which it held the GIL; without a GIL, its CPU time.
    computed: Histogram
    #: The times in which it waited for the GIL; without a GIL, in which it was parked.
    waited: Histogram
    blocked: Histogram  #: The rest: sleeps, files, C code that has dropped the GIL.
    lines: list[LateLine]  #: The lines that it was late for, the longest first.

    @property
    def late_s(self) -> float:
        """The sum of its late iterations."""
        return self.late_computed_s + self.late_waited_s + self.late_blocked_s


class GilReport(Record):
    """The report of a process and its children. `gil` is "enabled" or "disabled"; `wall_s` is how
    long the process was watched."""

    FIELDS: ClassVar[Fields] = {
        "schema": _INTEGER,
        "python": _TEXT,
        "pid": _INTEGER,
        **dict.fromkeys(("parent_pid", "forked_from"), _INTEGER_OR_NULL),
        "command": _or_null(_list_of(_TEXT)),
        "gil": _TEXT,
        "policy": _TEXT,
        "switch_interval_s": _SECONDS_OR_NULL,
        "wall_s": _NUMBER,
        "gils": _list_of(GilRow.decode),
        "threads": _list_of(ThreadRow.decode),
        "machine": _or_null(Machine.decode),
        "free_threading": _or_null(FreeThreading.decode),
        "event_loops": _list_of(EventLoopRow.decode),
        "unmeasured_events": _INTEGER,
        "unmeasured_gils": _INTEGER,
        "unmeasured_loops": _INTEGER,
        "children": lambda value, path: _list_of(GilReport.decode)(value, path),
        "unlisted_children": _INTEGER,
    }
    ADDED = ("unmeasured_gils", "machine", "event_loops", "unmeasured_loops")
    __slots__ = tuple(FIELDS)
    schema: int  #: The version of this format: 2.
    python: str  #: The version of CPython.
    pid: int  #: The ID of the process.
    parent_pid: int | None  #: The ID of its parent; null if unknown.
    #: The ID of the process that forked it; null if it was started otherwise.
    forked_from: int | None
    command: list[str] | None  #: The command line; null if unknown.
    gil: str  #: `enabled` or `disabled`.
    policy: str  #: The policy at the end.
    switch_interval_s: float | None  #: The switch interval at the end.
    wall_s: float  #: How long the process was watched.
    gils: list[GilRow]  #: A row for each GIL.
    threads: list[ThreadRow]  #: A row for each pair of a thread and a GIL, the longest wait first.
    #: Who used the cores; null if it is not known, as for the children.
    machine: Machine | None
    #: The waits of a free-threaded build; null for other builds.
    free_threading: FreeThreading | None
    #: A row for each event loop, the latest first; null if they were not measured.
    event_loops: list[EventLoopRow] | None
    unmeasured_events: int  #: Events of threads that found no free row of counters.
    #: Own GILs of sub-interpreters that found no room in the counters when these were made; null if
    #: they were not counted.
    unmeasured_gils: int | None
    #: Threads with event loops that found no room in the counters; null if they were not counted.
    unmeasured_loops: int | None
    children: list[GilReport]  #: The reports of the child processes.
    unlisted_children: int  #: How many child processes have no report.

    @classmethod
    def decode(cls, value: Any, path: str = "") -> GilReport:
        """Implements `Record.decode`. Also raises `Malformed` for a report of another schema."""
        if isinstance(value, dict) and value.get("schema") != SCHEMA:
            place = f"{path}.schema" if path else "schema"
            raise Malformed(f"{place} is {value.get('schema')!r:.40}, and must be {SCHEMA}")
        return super().decode(value, path)

    def processes(self) -> Iterator[GilReport]:
        """The report's own process, then its children, recursively."""
        yield self
        for child in self.children:
            yield from child.processes()

    def thread_names(self, ended: Iterable[tuple[int, str]]) -> dict[int, str]:
        """The names of threads by the kernel's ID. `ended` are those of ended threads, of which the
        later of two with one ID is last. If an ID was used twice, the name of the running thread
        wins."""
        names = dict(ended)
        for row in self.threads:
            if row.native_id and row.name and (row.alive or row.native_id not in names):
                names[row.native_id] = row.name
        return names

    def threads_of(self, gil: GilRow) -> list[ThreadRow]:
        """The rows of the threads that used the GIL."""
        return [thread for thread in self.threads if thread.gil == gil.id]
