"""Rolls up the rows of the store: ticks to ten seconds and minutes, these to five minutes and
hours, for each process and each process group.

Rollups are computed from the store's own rows, in the same transaction that deletes these rows or
advances the mark `done:TABLE`. Therefore a kill or a full disk leaves no partial work, and no other
state is needed between runs. A tick that arrives after the higher levels were rolled up is merged
into their rows. A late tick is divided over the rows of the time that it covers.

Runs in the store's writing thread, in steps of bounded work.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable

from headway import _native
from headway.recorder.records.merging import merge
from headway.recorder.store.encoding import (
    Damaged,
    pack_record,
    pack_ticks,
    unpack_record,
    unpack_ticks,
)
from headway.recorder.store.metadata import (
    Packing,
    add_to_mark,
    clear_packing,
    read_mark,
    read_packing,
    set_mark,
    set_packing,
)
from headway.recorder.store.schema import (
    GROUP_LEVELS,
    MINUTE_S,
    OWNER_BITS,
    OWNER_MASK,
    PROCESS_LEVELS,
    Level,
    row_id,
)

# How long a minute is kept open after its end for datagrams that are still in transit.
GRACE_S = 5.0
TEN_SECONDS, MINUTES = PROCESS_LEVELS[:2]
# A part of a tick that fills a row to its end has a time in this row, and not in the next.
WITHIN_S = 0.001
# Of a tick that covers more, after an absence of the recorder or of its process, the last hour is
# stored. A sender must not be able to make the store write more than this for one datagram.
LONGEST_S = 3600.0

# Each level and its source level, in the order of processing.
SOURCES = (
    (PROCESS_LEVELS[2], PROCESS_LEVELS[1]),
    (PROCESS_LEVELS[3], PROCESS_LEVELS[2]),
    (GROUP_LEVELS[0], PROCESS_LEVELS[0]),
    (GROUP_LEVELS[1], PROCESS_LEVELS[1]),
    (GROUP_LEVELS[2], GROUP_LEVELS[1]),
    (GROUP_LEVELS[3], GROUP_LEVELS[2]),
)


def parts_of(time: float, record: bytes) -> list[tuple[float, bytes]]:
    """The tick as ticks that each cover time of one row of TEN_SECONDS."""
    width_s = TEN_SECONDS.width_s
    first_s = (time - LONGEST_S) // width_s * width_s
    try:
        cells = _native.telemetry_spread(record, time, first_s, width_s)
    except ValueError:
        return [(time, record)]
    return [(min(time, first_s + (cell + 1) * width_s - WITHIN_S), part) for cell, part in cells]


class Rollup:
    """The rollup on one connection. Its methods run inside the caller's transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def pack(self, now: float, is_time_left: Callable[[], bool]) -> bool:
        """Packs the ticks of past minutes into minutes and rollups, one process after the other,
        while time is left. Returns whether all are packed.

        The ticks are deleted together at the end, because those of one process are scattered in
        the table. Until then the marks of `Packing` record which are packed.
        """
        boundary = (now - GRACE_S) // MINUTE_S * MINUTE_S
        packing = read_packing(self._connection)
        if packing is None:
            first = self._first_tick_time(now)
            if first is None or first >= boundary:
                return True
            last = self._connection.execute("SELECT max(number) FROM tick").fetchone()[0]
            packing = Packing(last, boundary, 0)
        while is_time_left():
            process = self._connection.execute(
                "SELECT min(process) FROM tick WHERE process > ?", (packing.process,)
            ).fetchone()[0]
            if process is None:
                self._connection.execute(
                    "DELETE FROM tick WHERE number <= ? AND time < ?", packing[:2]
                )
                clear_packing(self._connection)
                return True
            self._pack(process, packing)
            packing = packing._replace(process=process)
        set_packing(self._connection, packing)
        return False

    def _first_tick_time(self, now: float) -> float | None:
        first = self._connection.execute("SELECT time FROM tick ORDER BY number LIMIT 1").fetchone()
        if first is not None and first[0] > now + MINUTE_S:
            # This tick dates from before the clock was set back, and stays until the clock reaches
            # its time again.
            first = self._connection.execute("SELECT min(time) FROM tick").fetchone()
        return None if first is None else first[0]

    def _pack(self, process: int, packing: Packing) -> None:
        rows = self._connection.execute(
            "SELECT time, record FROM tick WHERE process = ? AND number <= ? AND time < ? "
            "ORDER BY time",
            (process, packing.number, packing.boundary),
        )
        minutes: dict[float, list[tuple[float, bytes]]] = defaultdict(list)
        for time, record in rows:
            for end, part in parts_of(time, record):
                minutes[end // MINUTE_S].append((end, part))
        for ticks in minutes.values():
            self._pack_minute(process, ticks)

    def close_next(self, now: float) -> bool:
        """Rolls up one time span of one level. Must be called once `pack` has nothing left to do.
        Returns whether there was a span to roll up."""
        boundary = (now - GRACE_S) // MINUTE_S * MINUTE_S
        for level, source in SOURCES:
            width_s = max(level.width_s, MINUTE_S)
            done = self._done(level)
            if (end := boundary // width_s * width_s) <= done:
                continue
            first = self._connection.execute(
                f"SELECT min(id) FROM {source.table} WHERE id >= ?",
                (row_id(done, source.width_s, 0),),
            ).fetchone()[0]
            # Times without rows are skipped.
            start = end if first is None else (first >> OWNER_BITS) * source.width_s
            start = start // width_s * width_s
            if start < end:
                self._roll_up(level, source, start, start + width_s)
                end = start + width_s
            set_mark(self._connection, f"done:{level.table}", end)
            return True
        return False

    def _done(self, level: Level) -> float:
        return read_mark(self._connection, f"done:{level.table}")

    def _pack_minute(self, process: int, ticks: list[tuple[float, bytes]]) -> None:
        time = ticks[0][0]
        self._keep_ticks(row_id(time, MINUTE_S, process), ticks)
        tens: dict[float, list[bytes]] = defaultdict(list)
        for each, record in ticks:
            tens[each // 10 * 10].append(record)
        merged = {start: merge(records) for start, records in tens.items()}
        for start, record in merged.items():
            self.put(TEN_SECONDS, start, process, record)
        minute = merge(list(merged.values()))
        self.put(MINUTES, time, process, minute)
        self._catch_up(process, time, merged, minute)

    def _keep_ticks(self, key: int, ticks: list[tuple[float, bytes]]) -> None:
        present = self._read("minute", "ticks", key)
        if present is not None:
            with contextlib.suppress(Damaged):
                ticks = sorted([*unpack_ticks(present), *ticks])
        self._write("minute", key, pack_ticks(ticks), present)

    def _catch_up(self, process: int, time: float, tens: dict[float, bytes], minute: bytes) -> None:
        """Merges a late minute into the levels that are already rolled up beyond it."""
        for level in PROCESS_LEVELS[2:]:
            if time < self._done(level):
                self.put(level, time, process, minute)
        group = None
        for level in GROUP_LEVELS:
            if time >= self._done(level):
                continue
            if group is None:
                group = self._groups().get(process, 0)
            if level.width_s < MINUTE_S:
                for start, record in tens.items():
                    self.put(level, start, group, record)
            else:
                self.put(level, time, group, minute)

    def _roll_up(self, level: Level, source: Level, start: float, end: float) -> None:
        pieces: dict[int, list[bytes]] = defaultdict(list)
        regroups = level.owner != source.owner
        groups = self._groups() if regroups else {}
        for key, packed in self._rows(source, start, end):
            owner = key & OWNER_MASK
            if regroups:
                owner = groups.get(owner, 0)
            time = (key >> OWNER_BITS) * source.width_s
            try:
                pieces[row_id(time, level.width_s, owner)].append(unpack_record(packed))
            except Damaged:
                continue
        for key, records in pieces.items():
            self._write(level.table, key, pack_record(merge(records)), None)

    def _rows(self, level: Level, start: float, end: float) -> Iterable[tuple[int, bytes]]:
        return self._connection.execute(
            f"SELECT id, record FROM {level.table} WHERE id >= ? AND id < ?",
            (row_id(start, level.width_s, 0), row_id(end, level.width_s, 0)),
        )

    def put(self, level: Level, time: float, owner: int, record: bytes) -> None:
        """Merges a record into the level's row of this owner and time."""
        key = row_id(time, level.width_s, owner)
        present = self._read(level.table, "record", key)
        if present is not None:
            with contextlib.suppress(Damaged):
                record = merge([unpack_record(present), record])
        self._write(level.table, key, pack_record(record), present)

    def _read(self, table: str, column: str, key: int) -> bytes | None:
        row = self._connection.execute(
            f"SELECT {column} FROM {table} WHERE id = ?", (key,)
        ).fetchone()
        return None if row is None else row[0]

    def _write(self, table: str, key: int, packed: bytes, present: bytes | None) -> None:
        self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (key, packed))
        growth = len(packed) - len(present or b"")
        add_to_mark(self._connection, f"bytes:{table}", growth)

    def _groups(self) -> dict[int, int]:
        """The group of each process. Callers use the nonexistent group 0 for unknown processes."""
        return dict(self._connection.execute("SELECT id, process_group FROM process"))
