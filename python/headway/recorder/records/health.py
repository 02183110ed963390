"""HEALTH: the recorder's figures about itself, in the API and in metrics."""

from __future__ import annotations

from typing import TypedDict


class StoreHealth(TypedDict):
    """The store's part. `oldest` is a time since 1970, `bytes` and `limit` are sizes; `waiting` and
    `not_stored` count ticks and events."""

    path: str
    error: str | None
    waiting: int
    not_stored: int
    bytes: int
    limit: int
    oldest: float | None


class Health(TypedDict, total=False):
    """Counts since the recorder's start. A recorder that only shows a file receives nothing and has
    no counts."""

    received: int
    malformed: int
    malformed_by_reason: dict[str, int]
    refused: int
    refused_by_reason: dict[str, int]
    sequence_gaps: int
    unsent: int
    records_lost: int
    clocks_off: int
    events_left_out: int
    short_collections_left_out: int
    processes: int
    store: StoreHealth | None
    started: float | None
