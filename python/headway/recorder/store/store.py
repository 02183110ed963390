"""The store: one thread that writes received ticks and events into a SQLite database once a second.

A batch is one transaction, so committed data survives a kill. A failure (a full disk, a lock, a
damaged file, a folder without write permission) does not affect the rest of the recorder: the batch
waits, the database is opened again, and only items that do not fit into the queue meanwhile are
lost and counted. Readers have connections of their own (`reading`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable

from headway.errors import CommandError, reason_of
from headway.recorder.records.health import StoreHealth
from headway.recorder.records.received import Event, Tick
from headway.recorder.records.sender import FORGOTTEN_AFTER_S, Sender
from headway.recorder.store import schema
from headway.recorder.store.calls import CALL_BYTES, CallWriter
from headway.recorder.store.metadata import read_mark, set_mark
from headway.recorder.store.retention import forget_most, forget_old, oldest_time
from headway.recorder.store.rollup import Rollup
from headway.recorder.store.schema import MINUTE_S

COMMIT_INTERVAL_S = 1.0
# The most bytes that wait while the store cannot be written.
MAX_WAITING_BYTES = 64 * 1024 * 1024
# The longest time that rollup may delay the next batch.
ROLLUP_BUDGET_S = 0.3
# The longest time that deleting rows for the size's sake may add to that.
FORGET_BUDGET_S = 0.3
# Together with the write-ahead log, the store stays below a gigabyte.
DEFAULT_LIMIT_BYTES = 900 * 2**20
MIN_LIMIT_BYTES = 2**20
# The number of free pages that stay in the file; the rest is returned to the file system.
SPARE_PAGES = 1000

Item = Tick | Event


class Store:
    """Accepts ticks and events from any thread. Its own thread writes them."""

    def __init__(
        self,
        path: str,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        tell: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises `CommandError` if the file belongs to another program or a later version. Any
        other failure may be temporary, and does not prevent the recorder from starting."""
        self.path = path
        self._limit_bytes = limit_bytes
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Item] = deque()
        self._waiting_bytes = 0
        self._wake = threading.Event()
        self._is_closing = False
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._log_inode: tuple[int, int] | None = None
        self._lock_fd = -1
        self._rows: dict[Sender, int] = {}
        self._groups: dict[tuple[str, str], int] = {}
        self._saved: dict[Sender, tuple[object, ...]] = {}
        self._calls = CallWriter()
        # The largest id of a process row that existed when the file was opened.
        self._last_found = 0
        self._forgot = 0.0
        self.not_stored = 0
        self.committed = 0
        self.oldest: float | None = None
        self.error = ""
        self._thread = threading.Thread(target=self._run, name="headway-store", daemon=True)
        try:
            self._open()
        except schema.WrongStore as error:
            self._disconnect()
            raise CommandError(f"--store {path}: the file {error}", exit_code=2) from None
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def start(self) -> None:
        self._thread.start()

    def add(self, items: Iterable[Item]) -> None:
        """Queues items without blocking. If there is no room, the oldest items are lost."""
        with self._lock:
            for item in items:
                self._waiting.append(item)
                self._waiting_bytes += size_of(item)
            while self._waiting_bytes > MAX_WAITING_BYTES:
                self._waiting_bytes -= size_of(self._waiting.popleft())
                self.not_stored += 1

    def close(self) -> None:
        """Commits the waiting items if possible, and closes the store."""
        self._is_closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._disconnect()
        with self._lock:
            self.not_stored += len(self._waiting)
            self._waiting.clear()

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(COMMIT_INTERVAL_S)
            self.write()
        # Write the items that arrived during the last write.
        self.write()

    def write(self) -> bool:
        """Commits the waiting items, then runs rollup and retention within limits. Returns whether
        everything succeeded."""
        try:
            self._check_place()
            self._commit_waiting()
            self._tidy()
        except Exception as error:
            # The next batch is tried after any error: a defect must not end the thread.
            self._fail(error)
            return False
        if self.error:
            self.error = ""
            self._tell(f"the store {self.path} is written again")
        return True

    def _fail(self, error: Exception) -> None:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        if not self.error:
            self._tell(f"the store {self.path} cannot be written: {reason}; the live view goes on")
        self.error = reason or type(error).__name__
        if not is_busy(error):
            self._disconnect()

    def _check_place(self) -> None:
        """Opens the store again if its files were moved or deleted, because data written to the old
        files would be lost."""
        if self._connection is not None and self._inode != schema.inode_of(self.path):
            self._disconnect()
        if self._connection is not None and self._log_inode != schema.inode_of(f"{self.path}-wal"):
            # Only this connection still has the log open, so it must move its contents into the
            # database.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._disconnect()
        if self._connection is None:
            self._open()

    def _open(self) -> None:
        self._take_lock()
        self._connection = schema.connect(self.path)
        self._inode = schema.inode_of(self.path)
        self._rows.clear()
        self._saved.clear()
        self._calls.forget()
        self._groups = groups_of(self._connection)
        self._last_found = self._connection.execute(
            "SELECT coalesce(max(id), 0) FROM process"
        ).fetchone()[0]
        self.committed = int(read_mark(self._connection, "committed"))
        # The reads above create the log if there was none.
        self._log_inode = schema.inode_of(f"{self.path}-wal")

    def _take_lock(self) -> None:
        """Locks the store, because two recorders would roll up the same rows twice."""
        fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise OSError(0, "another recorder writes to it") from None
        self._lock_fd = fd

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _commit_waiting(self) -> None:
        connection = self._connection
        assert connection is not None, "opened just before"
        with self._lock:
            batch = list(self._waiting)
        if not batch:
            return
        rows, groups, saved = dict(self._rows), dict(self._groups), dict(self._saved)
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._insert(connection, batch)
            set_mark(connection, "committed", batch[-1].number)
            connection.execute("COMMIT")
        except BaseException:
            self._rows, self._groups, self._saved = rows, groups, saved
            self._calls.forget()
            roll_back(connection)
            raise
        self.committed = batch[-1].number
        with self._lock:
            # New items may have been appended, and the oldest of the batch may have been dropped.
            while self._waiting and self._waiting[0].number <= self.committed:
                self._waiting_bytes -= size_of(self._waiting.popleft())

    def _insert(self, connection: sqlite3.Connection, batch: list[Item]) -> None:
        for sender in {item.sender for item in batch}:
            self._save_sender(connection, sender)
        rows = self._rows
        connection.executemany(
            "INSERT OR REPLACE INTO tick VALUES (?, ?, ?, ?)",
            [
                (item.number, item.time, rows[item.sender], item.record)
                for item in batch
                if isinstance(item, Tick)
            ],
        )
        connection.executemany(
            "INSERT OR REPLACE INTO event (kind, time, process, key, body) VALUES (?, ?, ?, ?, ?)",
            [
                (item.kind, item.time, rows[item.sender], item.key, pack_body(item.body))
                for item in batch
                if isinstance(item, Event)
            ],
        )

        self._calls.write(
            connection, ((item.time, item.calls) for item in batch if isinstance(item, Tick))
        )

    def _save_sender(self, connection: sqlite3.Connection, sender: Sender) -> None:
        """Writes a process's row if the process is new or has changed. `last_seen` alone is updated
        once a minute."""
        minute = sender.last_seen // MINUTE_S
        state = (sender.started, sender.group, sender.kind, len(sender.identity), minute)
        if self._saved.get(sender) == (*state, sender.ended):
            return
        identity = json.dumps(sender.identity, sort_keys=True)
        connection.execute("INSERT OR IGNORE INTO identity (body) VALUES (?)", (identity,))
        values = (
            sender.started,
            self._save_group(connection, sender),
            sender.kind,
            connection.execute("SELECT id FROM identity WHERE body = ?", (identity,)).fetchone()[0],
            sender.first_seen,
            sender.last_seen,
            sender.sequence or 0,
            sender.ended,
        )
        row = self._rows.get(sender) or self._find(connection, sender)
        if row is None:
            row = connection.execute(
                "INSERT INTO process (host, pid, started, process_group, kind, identity, "
                "first_seen, last_seen, sequence, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (sender.host, sender.pid, *values),
            ).lastrowid
            assert row is not None, "an insert has a row"
        else:
            connection.execute(
                "UPDATE process SET started = ?, process_group = ?, kind = ?, identity = ?, "
                "first_seen = min(first_seen, ?), last_seen = max(last_seen, ?), sequence = ?, "
                "ended = ? WHERE id = ?",
                (*values, row),
            )
        self._rows[sender] = row
        self._saved[sender] = (*state, sender.ended)

    def _find(self, connection: sqlite3.Connection, sender: Sender) -> int | None:
        """The row of a process that an earlier run of the recorder has written, or `None`."""
        rows = connection.execute(
            "SELECT id FROM process WHERE host = ? AND pid = ? AND started = ? AND id <= ? "
            # A process without a start time is recognised by its continued sequence numbers.
            "AND (started OR (NOT ended AND sequence <= ? AND last_seen >= ?)) "
            "ORDER BY last_seen DESC",
            (
                sender.host,
                sender.pid,
                sender.started,
                self._last_found,
                sender.sequence or 0,
                sender.first_seen - FORGOTTEN_AFTER_S,
            ),
        ).fetchall()
        known = set(self._rows.values()) if rows else set()
        return next((row for (row,) in rows if row not in known), None)

    def _save_group(self, connection: sqlite3.Connection, sender: Sender) -> int:
        name = (sender.host, sender.group)
        row = self._groups.get(name)
        if row is None:
            row = connection.execute(
                "INSERT INTO process_group (host, name) VALUES (?, ?)", name
            ).lastrowid
            assert row is not None, "an insert has a row"
            self._groups[name] = row
        return row

    def _tidy(self) -> None:
        connection = self._connection
        assert connection is not None, "opened just before"
        now = self._clock()
        end = time.monotonic() + ROLLUP_BUDGET_S
        self._roll_up(connection, now, end)
        # `abs` covers a clock that was set back.
        if abs(now - self._forgot) >= MINUTE_S:
            transact(connection, lambda: forget_old(connection, now))
            self._forget_rows(connection, now)
            self.oldest = oldest_time(connection)
            self._forgot = now
        end = time.monotonic() + FORGET_BUDGET_S
        while transact(connection, lambda: forget_most(connection, self._limit_bytes, now)):
            self._forget_rows(connection, now)
            if time.monotonic() >= end:
                break
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        if free > SPARE_PAGES:
            # The pragma frees one page for each row that is fetched.
            connection.execute(
                f"PRAGMA incremental_vacuum({min(free - SPARE_PAGES, 1000)})"
            ).fetchall()

    def _forget_rows(self, connection: sqlite3.Connection, now: float) -> None:
        """Forgets which rows processes have that were deleted or are silent."""
        kept = {row for (row,) in connection.execute("SELECT id FROM process")}
        for sender, row in list(self._rows.items()):
            if row not in kept or now - sender.arrived > 3600:
                del self._rows[sender]
                self._saved.pop(sender, None)
        self._groups = groups_of(connection)

    def _roll_up(self, connection: sqlite3.Connection, now: float, end: float) -> None:
        rollup = Rollup(connection)

        def is_time_left() -> bool:
            return time.monotonic() < end

        if not transact(connection, lambda: rollup.pack(now, is_time_left)):
            return
        while is_time_left() and transact(connection, lambda: rollup.close_next(now)):
            pass

    def health(self) -> StoreHealth:
        with self._lock:
            waiting = len(self._waiting)
        return {
            "path": self.path,
            "error": self.error or None,
            "waiting": waiting,
            "not_stored": self.not_stored,
            "bytes": sum(map(size_of_file, (self.path, f"{self.path}-wal"))),
            "limit": self._limit_bytes,
            "oldest": self.oldest,
        }


def groups_of(connection: sqlite3.Connection) -> dict[tuple[str, str], int]:
    rows = connection.execute("SELECT id, host, name FROM process_group")
    return {(host, name): key for key, host, name in rows}


def transact(connection: sqlite3.Connection, work: Callable[[], object]) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work()
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return bool(result)


def roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def is_busy(error: Exception) -> bool:
    """Whether another program has locked the database. The connection remains usable then."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def size_of_file(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def size_of(item: Item) -> int:
    if isinstance(item, Event):
        return item.size
    return len(item.record) + 200 + CALL_BYTES * len(item.calls)


def pack_body(body: dict[str, object]) -> bytes:
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)
