"""Reads a store: the recorder's own while it is written, or a recording.

Each query uses a read-only connection exclusively. Rows are fetched inside one short transaction,
so they are consistent, and unpacked after it: a slow reader delays neither the writing thread nor
the checkpoints of its log.

A range is read from the coarsest level that fits, from finer levels at its ends, and from the ticks
that are in no rollup yet. If the finer rows of a time have been deleted, the coarser row that
covers it is used.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from headway.recorder.records.calls import Call
from headway.recorder.records.sender import Key
from headway.recorder.store import schema
from headway.recorder.store.calls import read_calls
from headway.recorder.store.encoding import Damaged, unpack_record, unpack_ticks
from headway.recorder.store.metadata import Packing, packing_of
from headway.recorder.store.schema import (
    GROUP_LEVELS,
    MINUTE_S,
    OWNER_BITS,
    OWNER_MASK,
    PROCESS_LEVELS,
    Level,
    row_id,
)
from headway.recorder.store.selection import Selection

FOREVER = 2.0**40
NO_PACKING = Packing(0, 0.0, 0)
MAX_NAMED_OWNERS = 200


class StoredProcess(NamedTuple):
    """A process in the store."""

    id: int
    host: str
    pid: int
    started: float
    group: str
    group_id: int
    kind: str
    identity: dict[str, Any]
    first_seen: float
    last_seen: float
    sequence: int
    ended: int

    @property
    def key(self) -> Key:
        return Key(self.host, self.pid, self.started)


class Piece(NamedTuple):
    """A record of a process or a group. It covers `width_s` seconds from `time` on; 0 stands for a
    tick at `time`."""

    time: float
    width_s: int
    owner: int
    record: bytes


class Span(NamedTuple):
    """A range [start, end) that is read from one level; `None` stands for the packed ticks."""

    level: Level | None
    start: float
    end: float


class Connection(NamedTuple):
    database: sqlite3.Connection
    inode: tuple[int, int] | None


class Reader:
    """Reads a store. Thread-safe. Its methods raise `sqlite3.Error` and `schema.WrongStore`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextlib.contextmanager
    def view(self) -> Iterator[StoreView]:
        """Returns a context with the current state of the store. Its body must be short."""
        connection = self._borrow()
        try:
            connection.database.execute("BEGIN")
            yield StoreView(connection.database)
            connection.database.execute("COMMIT")
        except BaseException:
            connection.database.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.database.close()

    def close(self) -> None:
        """Closes the idle connections. A connection in use is closed at the end of its view."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.database.close()

    def _borrow(self) -> Connection:
        # The path may name another file by now, whose inode differs.
        inode = schema.inode_of(self.path)
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return Connection(schema.connect_read_only(self.path), inode)
            if connection.inode == inode:
                return connection
            connection.database.close()


class StoreView:
    """A consistent view of the store, in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        marks = dict(connection.execute("SELECT name, value FROM progress"))
        self.committed = int(marks.get("committed", 0))
        self._marks: dict[str, float] = marks

    def processes(self, start: float, end: float) -> list[StoredProcess]:
        """The processes that were seen in [start, end)."""
        rows = self._connection.execute(
            "SELECT process.id, process.host, pid, started, process_group.name, process_group.id, "
            "kind, identity.body, first_seen, last_seen, sequence, ended FROM process "
            "JOIN process_group ON process_group.id = process_group "
            "JOIN identity ON identity.id = identity "
            "WHERE last_seen >= ? AND first_seen < ?",
            # `last_seen` is written once a minute.
            (start - MINUTE_S, end),
        )
        return [StoredProcess._make((*row[:7], read_identity(row[7]), *row[8:])) for row in rows]

    def has_sums_before(self, time: float) -> bool:
        """Whether an hour's sums of a group end before this time. They are kept longer than the
        processes."""
        (first,) = self._connection.execute("SELECT min(id) FROM process_group_3600").fetchone()
        return first is not None and ((first >> schema.OWNER_BITS) + 1) * 3600 <= time

    def groups(self, selection: Selection) -> list[int]:
        rows = self._connection.execute("SELECT id, host, name FROM process_group")
        return [key for key, host, name in rows if selection.has_group(host, name)]

    def resolution(self, start: float, of_groups: bool) -> int:
        """The width in seconds of the finest rows that reach back to `start`; 0 for ticks."""
        if self._kept("minute") <= start:
            return 0
        levels = levels_of(of_groups)
        for level in levels:
            if self._kept(level.table) <= start:
                return level.width_s
        return levels[-1].width_s

    def spans(self, start: float, end: float, widest_s: float, of_groups: bool) -> list[Span]:
        """The spans that cover [start, end). Their rows are no wider than `widest_s`, unless finer
        rows have been deleted."""
        widest_s = max(widest_s, self.resolution(start, of_groups))
        fitting = [level for level in levels_of(of_groups) if level.width_s <= widest_s]
        return list(self._cover(fitting[::-1], start, end))

    def _cover(self, levels: Sequence[Level], start: float, end: float) -> Iterator[Span]:
        """Covers [start, end) with `levels`, which are sorted from the coarsest to the finest."""
        if start >= end:
            return
        if not levels:
            yield Span(None, start, end)
            return
        level, finer = levels[0], levels[1:]
        width_s = level.width_s
        # Before `rough` there are no finer rows, so a row that is partly outside is used.
        rough = min((self._kept(each.table) for each in finer), default=self._kept("minute"))
        rough = min(rough, self._kept("minute"))
        first = start // width_s * width_s
        if first < start and start >= rough:
            first += width_s
        last = end // width_s * width_s
        if last < end <= rough:
            last += width_s
        last = min(last, self._done(level))
        if first >= last:
            yield from self._cover(finer, start, end)
            return
        yield from self._cover(finer, start, first)
        yield Span(level, first, last)
        yield from self._cover(finer, last, end)

    def _kept(self, table: str) -> float:
        return self._marks.get(f"kept:{table}", 0.0)

    def _done(self, level: Level) -> float:
        if level in PROCESS_LEVELS[:2]:
            # These levels contain every tick that is no longer a row of its own.
            return FOREVER
        return self._marks.get(f"done:{level.table}", 0.0)

    def fetch(self, spans: Iterable[Span], processes: set[int], groups: set[int]) -> list[Packed]:
        """The rows of the spans that belong to these processes, or to these groups if the span's
        level is one of groups.

        Ticks that are in no rollup are not included; see `ticks`.
        """
        found = []
        for span in spans:
            level = span.level
            if level is None:
                table, column, width_s, owners = "minute", "ticks", MINUTE_S, processes
                first = span.start // MINUTE_S * MINUTE_S
            else:
                table, column, width_s = level.table, "record", level.width_s
                owners = groups if level in GROUP_LEVELS else processes
                first = span.start
            rows = self._connection.execute(
                f"SELECT id, {column} FROM {table} WHERE id >= ? AND id < ?{choice(owners)}",
                (row_id(first, width_s, 0), row_id(span.end + width_s - 1e-6, width_s, 0)),
            )
            found += [
                Packed(span, (key >> OWNER_BITS) * width_s, width_s, key & OWNER_MASK, packed)
                for key, packed in rows
                if key & OWNER_MASK in owners
            ]
        return found

    def ticks(self, start: float, end: float, processes: set[int]) -> list[Piece]:
        """The ticks of these processes in [start, end) that are in no rollup yet."""
        packed = packing_of(self._marks) or NO_PACKING
        rows = self._connection.execute(
            "SELECT time, process, record FROM tick WHERE time >= ? AND time < ? "
            "AND NOT (number <= ? AND time < ? AND process <= ?)",
            (start, end, *packed),
        )
        return [
            Piece(time, 0, process, record)
            for time, process, record in rows
            if process in processes
        ]

    def calls(self, ids: Collection[str]) -> dict[str, Call]:
        """The calls with these identifiers and all their callers, as far as they are kept."""
        return read_calls(self._connection, ids)

    def events(
        self, kind: str, start: float, end: float, processes: set[int], limit: int
    ) -> list[tuple[float, int, str, dict[str, Any]]]:
        """The latest `limit` events, the latest first, as (time, process, key, body)."""
        rows = self._connection.execute(
            "SELECT time, process, key, body FROM event WHERE kind = ? AND time >= ? AND time < ? "
            "ORDER BY time DESC",
            (kind, start, end),
        )
        found = []
        for time, process, key, body in rows:
            if process in processes:
                found.append((time, process, key, unpack_body(body)))
                if len(found) == limit:
                    break
        return found


class Packed(NamedTuple):
    """A row of the store, not unpacked yet."""

    span: Span
    time: float
    width_s: int
    owner: int
    packed: bytes


def unpack(rows: Iterable[Packed]) -> Iterator[Piece]:
    """Yields the records of rows. Damaged rows are left out."""
    for row in rows:
        with contextlib.suppress(Damaged):
            if row.span.level is not None:
                yield Piece(row.time, row.width_s, row.owner, unpack_record(row.packed))
                continue
            for time, record in unpack_ticks(row.packed):
                if row.span.start <= time < row.span.end:
                    yield Piece(time, 0, row.owner, record)


def levels_of(groups: bool) -> tuple[Level, ...]:
    """The levels to read, from the finest to the coarsest. For groups, the finest level is that of
    processes, because recent rows are not rolled up to groups yet."""
    return (PROCESS_LEVELS[0], *GROUP_LEVELS) if groups else PROCESS_LEVELS


def choice(owners: set[int]) -> str:
    """An SQL condition that skips the rows of other owners, if there are few enough to list."""
    if len(owners) > MAX_NAMED_OWNERS:
        return ""
    return f" AND (id & {OWNER_MASK}) IN ({', '.join(map(str, owners))})"


@lru_cache(maxsize=4096)
def read_identity(text: str) -> dict[str, Any]:
    """Parses an identity. The result is cached, because the processes of a group have the same
    identity; callers must copy it before they change it."""
    identity = json.loads(text)
    return identity if isinstance(identity, dict) else {}


def unpack_body(packed: bytes) -> dict[str, Any]:
    try:
        body = json.loads(zlib.decompress(packed))
    except (zlib.error, ValueError):
        return {}
    return body if isinstance(body, dict) else {}
