"""Ranges, selections and recordings side by side: the table that grows by a row with each
configuration that was tried.

A row is asked for as NAME~FROM~TO~QUERY, each part escaped as in a URL: a name, a range as of
`from` and `to`, and a selection as of `host`, `group`, `pid` and `recording`. Without a name a row
is called by its configuration.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from headway.recorder.query.history import History
from headway.recorder.query.measuring import measure
from headway.recorder.query.query import BadQuestion, Question, bad, read_range
from headway.recorder.records import configuration

MAX_ROWS = 50
MAX_NAME = 200


def compare(history: History, asked: list[str]) -> list[dict[str, Any]]:
    """Each row's name, with what `measure` says of it."""
    if len(asked) > MAX_ROWS:
        raise BadQuestion(f"row: found {len(asked)} of them; allowed: {MAX_ROWS} at most")
    return [_row(history, text) for text in asked]


def _row(history: History, text: str) -> dict[str, Any]:
    parts = text.split("~")
    if len(parts) != 4:
        raise bad("row", text, "NAME~FROM~TO~QUERY, each part escaped")
    name, start, end, query = parts
    span = read_range(start, end)
    measured = measure(history, span, Question(query).selection())
    return {"name": unquote(name)[:MAX_NAME] or configuration.label(measured["config"]), **measured}
