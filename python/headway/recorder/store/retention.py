"""The retention of the store: deletes rows by age, level by level, and by size.

Each table has a share of the size. When the database has grown to its limit, the table that exceeds
its share most loses its oldest rows; usually this is the table of the ticks. Events, processes and
calls are within their shares unless somebody floods the recorder. The mark `kept:TABLE` is the time
before which rows were deleted, so that readers know which level to use. Runs in the store's writing
thread, inside its transactions.
"""

from __future__ import annotations

import math
import sqlite3
from typing import NamedTuple

from headway.recorder.store.calls import forget_most_calls, forget_old_calls
from headway.recorder.store.metadata import add_to_mark, read_mark, set_mark
from headway.recorder.store.schema import GROUP_LEVELS, MINUTE_S, OWNER_BITS, PROCESS_LEVELS, row_id

HOUR_S = 3600
DAY_S = 86_400
# The part of its time range that a table over its share loses at once.
SLICE = 1 / 50


class Kept(NamedTuple):
    """A table whose row ids begin with the time in units of `width_s`: how long it keeps rows, and
    its share of the store's size."""

    table: str
    width_s: int
    age_s: float
    share: float
    column: str = "record"


KEPT = (
    Kept("minute", MINUTE_S, 12 * HOUR_S, 0.25, "ticks"),
    *(
        Kept(level.table, level.width_s, age_s, share)
        for level, age_s, share in (
            (PROCESS_LEVELS[0], 6 * HOUR_S, 0.06),
            (PROCESS_LEVELS[1], 3 * DAY_S, 0.12),
            (PROCESS_LEVELS[2], 14 * DAY_S, 0.12),
            (PROCESS_LEVELS[3], 400 * DAY_S, 0.33),
            (GROUP_LEVELS[0], 2 * DAY_S, 0.04),
            (GROUP_LEVELS[1], 14 * DAY_S, 0.04),
            (GROUP_LEVELS[2], 400 * DAY_S, 0.04),
            (GROUP_LEVELS[3], 4000 * DAY_S, 0.02),
        )
    ),
)

# Beyond this number, the oldest processes are deleted; the sums of their groups remain.
MAX_PROCESSES = 100_000

# The share of processes with their groups and identities. Those that were seen after this time may
# still report; a process's row is written once a minute.
PROCESSES_SHARE = 0.1
REPORTING_S = 2 * MINUTE_S
# SQLite gives the largest id again if its row is deleted, and rows of others would pass to the new
# owner.
NOT_LAST = "id < (SELECT max(id) FROM process)"


class Unordered(NamedTuple):
    """A table whose row ids are no times: the bytes of a row, the column that orders rows from the
    oldest on, and its share of the store's size."""

    table: str
    bytes: str
    age: str
    share: float


UNORDERED = (
    Unordered("event", "length(body) + 2 * length(key) + 100", "time", 0.2),
    # Ticks that are in no rollup yet.
    Unordered("tick", "length(record) + 60", "number", 0.5),
)

# The largest age and number of events by kind.
EVENTS = {
    "slow": (90 * DAY_S, 20_000),
    "lifecycle": (400 * DAY_S, 50_000),
    "gc": (7 * DAY_S, 50_000),
    "hold": (90 * DAY_S, 20_000),
}


def used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the database without its free pages."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def oldest_time(connection: sqlite3.Connection) -> float | None:
    """The time of the oldest row, or `None` if there are no rows."""
    times = [
        float((first >> OWNER_BITS) * kept.width_s)
        for kept in KEPT
        for (first,) in connection.execute(f"SELECT min(id) FROM {kept.table}")
        if first is not None
    ]
    return min(times, default=None)


def forget_old(connection: sqlite3.Connection, now: float) -> None:
    for kept in KEPT:
        if read_mark(connection, f"kept:{kept.table}") > now:
            # The clock was ahead and has been set back. Rows are kept from now on.
            set_mark(connection, f"kept:{kept.table}", now)
        _drop_before(connection, kept, (now - kept.age_s) // kept.width_s * kept.width_s)
    for kind, (age_s, rows) in EVENTS.items():
        connection.execute("DELETE FROM event WHERE kind = ? AND time < ?", (kind, now - age_s))
        surplus = connection.execute(
            "SELECT time FROM event WHERE kind = ? ORDER BY time DESC LIMIT 1 OFFSET ?",
            (kind, rows),
        ).fetchone()
        if surplus is not None:
            connection.execute("DELETE FROM event WHERE kind = ? AND time <= ?", (kind, surplus[0]))
    forget_old_calls(connection, now)
    # The largest age of a process's rows.
    oldest = now - max(kept.age_s for kept in KEPT if kept.table.startswith("process_3600"))
    surplus = connection.execute(
        "SELECT last_seen FROM process ORDER BY last_seen DESC LIMIT 1 OFFSET ?", (MAX_PROCESSES,)
    ).fetchone()
    if surplus is not None:
        oldest = max(oldest, surplus[0])
    dropped = connection.execute(
        f"DELETE FROM process WHERE last_seen <= ? AND {NOT_LAST}", (oldest,)
    )
    # Processes may change what they say about themselves, as often as they report.
    _drop_unused_identities(connection)
    if dropped.rowcount:
        _drop_unused_groups(connection)


def forget_most(connection: sqlite3.Connection, limit_bytes: int, now: float) -> bool:
    """If the database exceeds the limit, drops a part of a table: of one that exceeds its share of
    the limit, or of the one that exceeds its share most. Processes that still report are dropped
    only if no rollups are left. Returns whether anything was dropped."""
    if used_bytes(connection) <= limit_bytes:
        return False
    return (
        forget_most_calls(connection, limit_bytes)
        or _drop_processes(connection, PROCESSES_SHARE * limit_bytes, now - REPORTING_S)
        or any(_drop_oldest(connection, each, each.share * limit_bytes) for each in UNORDERED)
        or _drop_slice(connection)
        or _drop_processes(connection, PROCESSES_SHARE * limit_bytes, math.inf)
        or any(_drop_oldest(connection, each, 0) for each in UNORDERED)
        or forget_most_calls(connection, 0)
        or _drop_processes(connection, 0, math.inf)
    )


def _drop_slice(connection: sqlite3.Connection) -> bool:
    """Drops a slice of the table of KEPT that exceeds its share most."""
    by_excess = sorted(
        KEPT,
        key=lambda kept: read_mark(connection, f"bytes:{kept.table}") / kept.share,
        reverse=True,
    )
    for kept in by_excess:
        first, last = connection.execute(f"SELECT min(id), max(id) FROM {kept.table}").fetchone()
        if first is None:
            continue
        first, last = first >> OWNER_BITS, last >> OWNER_BITS
        slice_ = 1 + int((last - first) * SLICE)
        _drop_before(connection, kept, (first + slice_) * kept.width_s)
        return True
    return False


def _drop_oldest(connection: sqlite3.Connection, unordered: Unordered, most_bytes: float) -> bool:
    """Drops a tenth of the table, its oldest rows, if it has more bytes."""
    table = unordered.table
    (size,) = connection.execute(f"SELECT sum({unordered.bytes}) FROM {table}").fetchone()
    if (size or 0) <= most_bytes:
        return False
    connection.execute(
        f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} "
        f"ORDER BY {unordered.age} LIMIT 1 + (SELECT count(*) FROM {table}) / 10)"
    )
    return True


def _drop_processes(connection: sqlite3.Connection, most_bytes: float, seen_before: float) -> bool:
    """If processes with their groups and identities have more bytes, drops a tenth of them: those
    that were seen longest ago, and before `seen_before`."""
    if _bytes_of_processes(connection) <= most_bytes:
        return False
    if _drop_unused_identities(connection):
        return True
    dropped = connection.execute(
        "DELETE FROM process WHERE id IN (SELECT id FROM process WHERE last_seen < ? "
        f"AND {NOT_LAST} ORDER BY last_seen LIMIT 1 + (SELECT count(*) FROM process) / 10)",
        (seen_before,),
    )
    if not dropped.rowcount:
        return False
    for table in ("event", "tick"):
        connection.execute(f"DELETE FROM {table} WHERE process NOT IN (SELECT id FROM process)")
    _drop_unused_identities(connection)
    _drop_unused_groups(connection)
    return True


def _bytes_of_processes(connection: sqlite3.Connection) -> int:
    """An estimate. A text that an index has too counts twice."""
    return sum(
        connection.execute(f"SELECT coalesce(sum({size}), 0) FROM {table}").fetchone()[0]
        for table, size in (
            ("identity", "2 * length(body) + 50"),
            ("process", "2 * length(host) + length(kind) + 150"),
            ("process_group", "2 * (length(host) + length(name)) + 50"),
        )
    )


def _drop_unused_identities(connection: sqlite3.Connection) -> bool:
    """Drops identities that no process has. Returns whether there were any."""
    dropped = connection.execute(
        "DELETE FROM identity WHERE id NOT IN (SELECT identity FROM process)"
    )
    return dropped.rowcount > 0


def _drop_unused_groups(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM process_group WHERE id NOT IN (SELECT process_group FROM process) "
        "AND id < (SELECT max(id) FROM process_group)"
    )


def _drop_before(connection: sqlite3.Connection, kept: Kept, time: float) -> None:
    rows, size = connection.execute(
        f"SELECT count(*), sum(length({kept.column})) FROM {kept.table} WHERE id < ?",
        (row_id(time, kept.width_s, 0),),
    ).fetchone()
    if not rows:
        return
    connection.execute(f"DELETE FROM {kept.table} WHERE id < ?", (row_id(time, kept.width_s, 0),))
    add_to_mark(connection, f"bytes:{kept.table}", -size)
    if time > read_mark(connection, f"kept:{kept.table}"):
        set_mark(connection, f"kept:{kept.table}", time)
