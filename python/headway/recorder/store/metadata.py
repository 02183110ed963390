"""Numbers that the store keeps about itself, in its table `progress`."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple


def read_mark(connection: sqlite3.Connection, name: str) -> float:
    """The value of a mark, or 0 if it was never set."""
    row = connection.execute("SELECT value FROM progress WHERE name = ?", (name,)).fetchone()
    return 0.0 if row is None else row[0]


def set_mark(connection: sqlite3.Connection, name: str, value: float) -> None:
    connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", (name, value))


def add_to_mark(connection: sqlite3.Connection, name: str, amount: float) -> None:
    connection.execute(
        "INSERT INTO progress VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + ?2",
        (name, amount),
    )


class Packing(NamedTuple):
    """The state of packing. Of the ticks up to `number` with a time before `boundary`, those of
    processes up to `process` are already in their minutes and rollups, but not deleted yet."""

    number: int
    boundary: float
    process: int


def packing_of(marks: Mapping[str, float]) -> Packing | None:
    """The state of packing in `marks`, or `None` if no packing is in progress."""
    if "packing:number" not in marks:
        return None
    return Packing(
        int(marks["packing:number"]), marks["packing:boundary"], int(marks["packing:process"])
    )


def read_packing(connection: sqlite3.Connection) -> Packing | None:
    rows = connection.execute("SELECT name, value FROM progress WHERE name LIKE 'packing:%'")
    return packing_of(dict(rows))


def set_packing(connection: sqlite3.Connection, packing: Packing) -> None:
    for name, value in packing._asdict().items():
        set_mark(connection, f"packing:{name}", value)


def clear_packing(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM progress WHERE name LIKE 'packing:%'")
