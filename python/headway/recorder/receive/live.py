"""The last minutes, in memory: what the dashboard shows of now, and all there is while the store
cannot be written.

Ticks are kept as the store keeps them, in the order of arrival. Whoever asks copies references
under a lock and works on them outside it, so that no reader holds up the receiving thread, which
writes. Knows nothing of SQLite.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, NamedTuple

from headway.recorder.receive.processes import MAX_AHEAD_S, Sender

WINDOW_S = 600.0
MAX_BYTES = 96 * 1024 * 1024
MAX_EVENTS = 5_000
# What a tick takes beside its record.
TICK_BYTES = 200


class Tick(NamedTuple):
    """`number` grows from tick to tick, and from run to run of the recorder."""

    number: int
    time: float
    sender: Sender
    record: bytes


class Event(NamedTuple):
    """A slow request, lifecycle message, collection or long hold. One with the `key` of an earlier
    one of its sender replaces it."""

    number: int
    kind: str
    time: float
    sender: Sender
    key: str
    body: dict[str, Any]


class Live:
    """Bounded by time and by bytes, whichever comes first."""

    def __init__(self, window_s: float = WINDOW_S, max_bytes: int = MAX_BYTES) -> None:
        self._window_s = window_s
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._ticks: deque[tuple[float, Tick]] = deque()
        self._bytes = 0
        self._events: dict[tuple[int, str, str], Event] = {}
        self.began = 0.0
        # Everything that arrived since then is here.
        self.complete_from = 0.0

    def begin(self, now: float) -> None:
        self.began = now
        # An earlier run may have what was stamped with a time ahead.
        self.complete_from = now + MAX_AHEAD_S

    def add(self, ticks: Iterable[Tick], events: Iterable[Event], now: float) -> None:
        with self._lock:
            for tick in ticks:
                self._ticks.append((now, tick))
                self._bytes += len(tick.record) + TICK_BYTES
            for event in events:
                key = (id(event.sender), event.kind, event.key)
                # To the end, where the latest are.
                self._events.pop(key, None)
                self._events[key] = event
            while self._ticks and (
                self._bytes > self._max_bytes or now - self._ticks[0][0] > self._window_s
            ):
                arrived, tick = self._ticks.popleft()
                self._bytes -= len(tick.record) + TICK_BYTES
                self.complete_from = max(self.complete_from, arrived + MAX_AHEAD_S)
            while len(self._events) > MAX_EVENTS:
                del self._events[next(iter(self._events))]

    def ticks(self, start: float, end: float, after: int = 0) -> list[Tick]:
        """Those with a time in [start, end) and a number above `after`."""
        with self._lock:
            rows = takewhile(lambda row: row[1].number > after, reversed(self._ticks))
            # Those that matter are at the end as a rule, and there may be very many.
            found = [tick for _, tick in rows]
        return [tick for tick in reversed(found) if start <= tick.time < end]

    def recent_ticks(self, start: float, end: float) -> list[Tick]:
        """Those with a time in [start, end), which is complete from `complete_from` on."""
        with self._lock:
            # None is stamped with a time further ahead.
            rows = takewhile(lambda row: row[0] >= start - MAX_AHEAD_S, reversed(self._ticks))
            found = [tick for _, tick in rows]
        return [tick for tick in reversed(found) if start <= tick.time < end]

    def events(
        self,
        kind: str,
        start: float,
        end: float,
        after: int,
        wanted: Callable[[Sender], bool],
    ) -> list[Event]:
        with self._lock:
            found = list(self._events.values())
        return [
            event
            for event in found
            if event.kind == kind
            and event.number > after
            and start <= event.time < end
            and wanted(event.sender)
        ]
