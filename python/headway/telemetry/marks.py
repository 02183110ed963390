"""Numbers that the store keeps about itself, in its table `progress`."""

from __future__ import annotations

import sqlite3


def read_mark(connection: sqlite3.Connection, name: str) -> float:
    """0 for one that was never set."""
    row = connection.execute("SELECT value FROM progress WHERE name = ?", (name,)).fetchone()
    return 0.0 if row is None else row[0]


def set_mark(connection: sqlite3.Connection, name: str, value: float) -> None:
    connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", (name, value))


def add_to_mark(connection: sqlite3.Connection, name: str, amount: float) -> None:
    connection.execute(
        "INSERT INTO progress VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + ?2",
        (name, amount),
    )
