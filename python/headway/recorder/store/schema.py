"""The store's tables, and the opening of a database. Does not depend on the meaning of rows.

`PRAGMA application_id` identifies a database of Headway, `PRAGMA user_version` is its schema.
"""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from typing import NamedTuple

SCHEMA = 1
APPLICATION_ID = 0x48445759
# Rows have a few kilobytes, so that a page holds several.
PAGE_BYTES = 16_384
# How long a statement waits for another program's lock.
BUSY_TIMEOUT_S = 1.0
WAL_AUTOCHECKPOINT_PAGES = 1_000
JOURNAL_LIMIT_BYTES = 32 * 1024 * 1024

# The key of a rollup row is one integer with `start / width` in the high bits and the owner's id in
# the low bits, so that the oldest rows are adjacent and are deleted together.
OWNER_BITS = 28
OWNER_MASK = (1 << OWNER_BITS) - 1
MINUTE_S = 60


def row_id(time: float, width_s: int, owner: int) -> int:
    return (int(time // width_s) << OWNER_BITS) | owner


class Level(NamedTuple):
    """A table of records of `width_s` seconds, of processes or of whole process groups."""

    owner: str
    width_s: int

    @property
    def table(self) -> str:
        return f"{self.owner}_{self.width_s}"


PROCESS_LEVELS = tuple(Level("process", width_s) for width_s in (10, 60, 300, 3600))
GROUP_LEVELS = tuple(Level("process_group", width_s) for width_s in (10, 60, 300, 3600))
LEVELS = PROCESS_LEVELS + GROUP_LEVELS

# Stores of earlier versions get it when they are opened for writing. `day` is the day, since 1970,
# on which a process last named the call.
CALL_TABLE = """
CREATE TABLE IF NOT EXISTS call (
    id TEXT PRIMARY KEY,
    caller TEXT,
    function TEXT NOT NULL,
    place TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    day INTEGER NOT NULL
) WITHOUT ROWID;
"""
TABLES = """
CREATE TABLE process_group (
    id INTEGER PRIMARY KEY,
    host TEXT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (host, name)
);
CREATE TABLE identity (
    id INTEGER PRIMARY KEY,
    body TEXT NOT NULL UNIQUE
);
CREATE TABLE process (
    id INTEGER PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started REAL NOT NULL,
    process_group INTEGER NOT NULL REFERENCES process_group,
    kind TEXT NOT NULL,
    identity INTEGER NOT NULL REFERENCES identity,
    first_seen REAL NOT NULL,
    last_seen REAL NOT NULL,
    sequence INTEGER NOT NULL,
    ended INTEGER NOT NULL
);
CREATE INDEX process_by_name ON process (host, pid, started);
CREATE INDEX process_by_time ON process (last_seen);
-- Ticks that are in no rollup yet.
CREATE TABLE tick (
    number INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    process INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE INDEX tick_by_process ON tick (process, time);
-- The ticks of one process and minute.
CREATE TABLE minute (
    id INTEGER PRIMARY KEY,
    ticks BLOB NOT NULL
);
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    time REAL NOT NULL,
    process INTEGER NOT NULL,
    key TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (process, kind, key)
);
CREATE INDEX event_by_time ON event (kind, time);
-- `committed`: the number of the latest tick or event; `done:TABLE`: rolled up until then;
-- `packing:...`: see `metadata.Packing`; `kept:TABLE`: nothing is left from before; `bytes:TABLE`:
-- what its rows hold.
CREATE TABLE progress (
    name TEXT PRIMARY KEY,
    value NUMERIC NOT NULL
) WITHOUT ROWID;
"""


class WrongStore(Exception):
    """The file is not a store that this version can use. The text describes what it is."""


def connect(path: str) -> sqlite3.Connection:
    """Opens the only writing connection, and creates the tables in a new database.

    Raises `sqlite3.Error` and `WrongStore`.
    """
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        check(connection)
        # The next two pragmas only have an effect on an empty database.
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # A commit survives a crash of the recorder at once, and a crash of the machine after the
        # next checkpoint. Neither corrupts the database.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
        if version_of(connection) == 0:
            make_tables(connection)
        elif not has_table(connection, "call"):
            connection.execute(CALL_TABLE)
    except BaseException:
        connection.close()
        raise
    return connection


def make_tables(connection: sqlite3.Connection) -> None:
    rollups = "".join(
        f"CREATE TABLE {level.table} (id INTEGER PRIMARY KEY, record BLOB NOT NULL);\n"
        for level in LEVELS
    )
    connection.executescript(
        f"BEGIN IMMEDIATE;\n{TABLES}{CALL_TABLE}{rollups}"
        f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {SCHEMA};\nCOMMIT;"
    )


def connect_read_only(path: str) -> sqlite3.Connection:
    """Opens a read-only connection for one thread at a time. Raises `sqlite3.Error` and
    `WrongStore`, also for a database without tables."""
    connection = sqlite3.connect(
        uri_of(path, "ro"),
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        check(connection)
        if version_of(connection) == 0:
            raise WrongStore("is empty")
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def uri_of(path: str, mode: str) -> str:
    return f"file:{urllib.parse.quote(os.path.abspath(path))}?mode={mode}"


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,))
    return found.fetchone() is not None


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def check(connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise WrongStore("is a database of another program")
        return
    version = version_of(connection)
    if version > SCHEMA:
        raise WrongStore(
            f"has schema {version}, and this version of Headway knows schemas up to {SCHEMA}"
        )


def inode_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
