"""The last minutes in memory: the dashboard's current data, and the only data while the store
cannot be written.

Ticks are kept in the same form as in the store, in the order of arrival. A reader copies references
under a lock and processes them outside it, so that no reader delays the receiving thread, which
writes. This module does not depend on SQLite.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile

from headway.recorder.records.calls import Call, Calls
from headway.recorder.records.received import Event, Tick
from headway.recorder.records.sender import MAX_AHEAD_S, Sender

WINDOW_S = 600.0
MAX_BYTES = 96 * 1024 * 1024
MAX_EVENTS = 5_000
MAX_EVENT_BYTES = 32 * 1024 * 1024
# The estimated memory of a tick in addition to its record.
TICK_BYTES = 200


class Live:
    """The ticks and events of the last minutes. Ticks are limited by age, and both by bytes."""

    def __init__(self, window_s: float = WINDOW_S, max_bytes: int = MAX_BYTES) -> None:
        self._window_s = window_s
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._ticks: deque[tuple[float, Tick]] = deque()
        self._bytes = 0
        self._events: dict[tuple[int, str, str], Event] = {}
        self._event_bytes = 0
        self._calls = Calls()
        self.began = 0.0
        # From this time on the ticks are complete.
        self.complete_from = 0.0

    def begin(self, now: float) -> None:
        self.began = now
        # Ticks with a stamp in the future may have arrived in an earlier run.
        self.complete_from = now + MAX_AHEAD_S

    def add(self, ticks: Iterable[Tick], events: Iterable[Event], now: float) -> None:
        with self._lock:
            for tick in ticks:
                # Calls have a bound of their own.
                self._calls.add(tick.calls)
                self._ticks.append((now, tick._replace(calls=()) if tick.calls else tick))
                self._bytes += len(tick.record) + TICK_BYTES
            for event in events:
                key = (id(event.sender), event.kind, event.key)
                # The latest events are at the end.
                self._drop_event(key)
                self._events[key] = event
                self._event_bytes += event.size
            while self._ticks and (
                self._bytes > self._max_bytes or now - self._ticks[0][0] > self._window_s
            ):
                arrived, tick = self._ticks.popleft()
                self._bytes -= len(tick.record) + TICK_BYTES
                self.complete_from = max(self.complete_from, arrived + MAX_AHEAD_S)
            while len(self._events) > MAX_EVENTS or self._event_bytes > MAX_EVENT_BYTES:
                self._drop_event(next(iter(self._events)))

    def _drop_event(self, key: tuple[int, str, str]) -> None:
        dropped = self._events.pop(key, None)
        if dropped is not None:
            self._event_bytes -= dropped.size

    def ticks(self, start: float, end: float, after: int = 0) -> list[Tick]:
        """The ticks with a time in [start, end) and a number above `after`."""
        with self._lock:
            rows = takewhile(lambda row: row[1].number > after, reversed(self._ticks))
            # Searched from the end, where the matching ticks usually are, because there may be very
            # many ticks.
            found = [tick for _, tick in rows]
        return [tick for tick in reversed(found) if start <= tick.time < end]

    def recent_ticks(self, start: float, end: float) -> list[Tick]:
        """The ticks with a time in [start, end). They are complete from `complete_from` on."""
        with self._lock:
            # No stamp is further ahead than this.
            rows = takewhile(lambda row: row[0] >= start - MAX_AHEAD_S, reversed(self._ticks))
            found = [tick for _, tick in rows]
        return [tick for tick in reversed(found) if start <= tick.time < end]

    def calls(self, ids: Iterable[str]) -> dict[str, Call]:
        """The calls with these identifiers, as far as they were named lately."""
        with self._lock:
            return self._calls.find(ids)

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
