"""The store's table of calls, whose identifiers records have.

A call is written when it is first named, and once a day while it is named, so that calls that no
code has any more can be deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from headway.recorder.records.calls import Call
from headway.recorder.store.schema import has_table

DAY_S = 86_400
# How long a call is kept after it was last named, and how many calls are kept.
AGE_S = 400 * DAY_S
MAX_CALLS = 100_000
# The part of the store's size that calls may have once it has reached its limit, and the estimated
# bytes of a call.
SHARE = 0.05
CALL_BYTES = 200
# The most identifiers of which one run of the recorder remembers the day.
MAX_REMEMBERED = 50_000


class CallWriter:
    """Writes calls. The methods run inside the caller's transactions."""

    def __init__(self) -> None:
        # The day on which a call was last written.
        self._days: dict[str, int] = {}

    def forget(self) -> None:
        """Forgets what was written, because a transaction failed or the file is another one."""
        self._days.clear()

    def write(
        self, connection: sqlite3.Connection, named: Iterable[tuple[float, Iterable[Call]]]
    ) -> None:
        """Writes calls, each with the time at which it was named."""
        rows = []
        for time, calls in named:
            day = int(time // DAY_S)
            for call in calls:
                if self._days.get(call.id, -1) < day:
                    self._days[call.id] = day
                    rows.append((*call, day))
        connection.executemany(
            "INSERT INTO call VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET day = max(day, excluded.day)",
            rows,
        )
        if len(self._days) > MAX_REMEMBERED:
            self._days.clear()


def read_calls(connection: sqlite3.Connection, ids: Collection[str]) -> dict[str, Call]:
    """The calls with these identifiers and all their callers. A store of an earlier version has
    none."""
    found: dict[str, Call] = {}
    if not has_table(connection, "call"):
        return found
    wanted = set(ids)
    while wanted:
        marks = ", ".join("?" * len(wanted))
        rows = connection.execute(
            f"SELECT id, caller, function, place, endpoint FROM call WHERE id IN ({marks})",
            tuple(wanted),
        )
        calls = [Call._make(row) for row in rows]
        found.update((call.id, call) for call in calls)
        wanted = {call.caller for call in calls if call.caller is not None} - found.keys()
    return found


def forget_old_calls(connection: sqlite3.Connection, now: float) -> None:
    connection.execute("DELETE FROM call WHERE day < ?", (int((now - AGE_S) // DAY_S),))
    _forget_some(connection, MAX_CALLS)


def forget_most_calls(connection: sqlite3.Connection, limit_bytes: int) -> bool:
    """Deletes calls if there are more than their share of a store that has reached its limit.
    Returns whether any were deleted."""
    return _forget_some(connection, int(SHARE * limit_bytes / CALL_BYTES))


def _forget_some(connection: sqlite3.Connection, most: int) -> bool:
    """Deletes those that were named longest ago, if there are more than `most`."""
    (count,) = connection.execute("SELECT count(*) FROM call").fetchone()
    if count <= most:
        return False
    connection.execute(
        "DELETE FROM call WHERE id IN (SELECT id FROM call ORDER BY day LIMIT ?)", (count - most,)
    )
    return True
