"""Recordings: stores that are read in addition to the recorder's own, or exported from it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable

from headway.errors import CommandError, reason_of
from headway.recorder.store import schema
from headway.recorder.store.calls import DAY_S
from headway.recorder.store.reading import Reader
from headway.recorder.store.retention import KEPT
from headway.recorder.store.schema import MINUTE_S, PROCESS_LEVELS, row_id

COARSEST_S = PROCESS_LEVELS[-1].width_s


def parse_recordings(texts: Iterable[str]) -> dict[str, str]:
    """Parses texts of the form NAME=FILE. Raises `CommandError` with exit code 2."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path or not name.isprintable():
            raise CommandError(
                f"--recording {text!r}: it must be NAME=FILE, such as before=monday.sqlite", 2
            )
        if name in found:
            raise CommandError(f"--recording {text!r}: there are two of the name {name!r}", 2)
        found[name] = path
    return found


def open_recording(name: str, path: str) -> Reader:
    """Opens a recording. Raises `CommandError` with exit code 2 if the file is not a store."""
    reader = Reader(path)
    try:
        with reader.view():
            pass
    except schema.WrongStore as error:
        raise CommandError(f"--recording {name}={path}: the file {error}", exit_code=2) from None
    except sqlite3.Error as error:
        reason = "there is no such file" if not os.path.exists(path) else str(error)
        raise CommandError(f"--recording {name}={path}: {reason}", exit_code=2) from None
    return reader


def take_away(store: str, target: str, start: float, end: float) -> None:
    """Exports the range [start, end) of the store to a new compact file, which --recording can
    open. Rollups that extend beyond the range are copied whole. The store may be in use meanwhile.

    Raises `CommandError`.
    """
    if os.path.exists(target):
        raise CommandError(f"--export {target}: the file is there already", exit_code=2)
    if not os.path.exists(store):
        raise CommandError(f"--store {store}: there is no such file", exit_code=2)
    part = f"{target}.{os.urandom(8).hex()}.part"
    try:
        # The file is new, so an error deletes none of another program.
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except OSError as error:
        raise CommandError(f"--export {target}: {reason_of(error)}") from None
    try:
        # Raises an error if the file is not a store.
        with contextlib.closing(schema.connect_read_only(store)):
            copy_range(store, part, start, end)
        os.rename(part, target)
    except (sqlite3.Error, OSError, schema.WrongStore) as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise CommandError(f"--export {target}: {reason}") from None


def copy_range(store: str, target: str, start: float, end: float) -> None:
    """Copies the range in one transaction, so that the copy is consistent."""
    copy = sqlite3.connect(schema.uri_of(target, "rwc"), uri=True, isolation_level=None)
    with contextlib.closing(copy):
        copy.execute(f"PRAGMA page_size = {schema.PAGE_BYTES}")
        schema.make_tables(copy)
        copy.execute("ATTACH ? AS store", (schema.uri_of(store, "ro"),))
        copy.execute("BEGIN")
        copy.execute("INSERT INTO progress SELECT * FROM store.progress")
        for kept in KEPT:
            copy.execute(
                f"INSERT INTO {kept.table} SELECT * FROM store.{kept.table} "
                "WHERE id >= ? AND id < ?",
                (
                    row_id(start, kept.width_s, 0),
                    row_id(end + kept.width_s - 1e-6, kept.width_s, 0),
                ),
            )
        for table in ("tick", "event"):
            copy.execute(
                f"INSERT INTO {table} SELECT * FROM store.{table} WHERE time >= ? AND time < ?",
                (start, end),
            )
        copy.execute(
            "INSERT INTO process SELECT * FROM store.process "
            "WHERE last_seen >= ? AND first_seen < ?",
            # Include processes whose coarse rows extend into the range.
            (start - COARSEST_S, end + COARSEST_S),
        )
        for table, column in (("identity", "identity"), ("process_group", "process_group")):
            copy.execute(
                f"INSERT INTO {table} SELECT * FROM store.{table} "
                f"WHERE id IN (SELECT {column} FROM process)"
            )
        if copy.execute("SELECT 1 FROM store.sqlite_master WHERE name = 'call'").fetchone():
            # A coarse row extends into the range, and a process names its calls again after a
            # minute.
            first = int((start - COARSEST_S - MINUTE_S) // DAY_S)
            copy.execute("INSERT INTO call SELECT * FROM store.call WHERE day >= ?", (first,))
        copy.execute("COMMIT")
        copy.execute("DETACH store")


def parse_moment(text: str, option: str, now: float) -> float:
    """Parses a time: seconds since 1970, a negative number of seconds before now, or a date such as
    2026-11-22T04:00 in local time. Raises `CommandError` with exit code 2."""
    try:
        moment = float(text)
    except ValueError:
        for form in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"):
            with contextlib.suppress(ValueError, OverflowError):
                return time.mktime(time.strptime(text, form))
        raise CommandError(
            f"{option} {text!r}: it must be seconds since 1970, seconds before now as -3600, or a "
            "date as 2026-11-22T04:00",
            exit_code=2,
        ) from None
    if moment != moment or abs(moment) > 1e11:
        raise CommandError(f"{option} {text!r}: there is no such time", exit_code=2)
    return now + moment if moment < 0 else moment
