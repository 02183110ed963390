"""Compares ranges, selections and recordings in a table, usually with one row for each
configuration that was tried.

The parameter of a row is NAME~FROM~TO~QUERY, each part escaped as in a URL: a name, a range as in
the parameters `from` and `to`, and a selection as in `host`, `group`, `pid` and `recording`. A row
without a name is named by its configuration.
"""

from __future__ import annotations

from urllib.parse import unquote

from headway.recorder.diagnosis.verdict import Measured
from headway.recorder.query.history import History
from headway.recorder.query.measuring import measure
from headway.recorder.query.query import BadQuery, Query, bad, read_range
from headway.recorder.records import configuration

MAX_ROWS = 50
MAX_NAME = 200


class Compared(Measured):
    """A row: its name and the result of `measure`."""

    name: str


def compare(history: History, asked: list[str]) -> list[Compared]:
    """The rows in the order of `asked`."""
    if len(asked) > MAX_ROWS:
        raise BadQuery(f"row: found {len(asked)} of them; allowed: {MAX_ROWS} at most")
    return [_row(history, text) for text in asked]


def _row(history: History, text: str) -> Compared:
    parts = text.split("~")
    if len(parts) != 4:
        raise bad("row", text, "NAME~FROM~TO~QUERY, each part escaped")
    name, start, end, query = parts
    span = read_range(start, end)
    measured = measure(history, span, Query(query).selection())
    return {"name": unquote(name)[:MAX_NAME] or configuration.label(measured["config"]), **measured}
