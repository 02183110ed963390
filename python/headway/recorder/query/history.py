"""Recorded data over any range of time: combines the live window and the store.

A tick belongs to the range that contains its time, which is the end of the tick's interval. A late
tick, which covers several intervals, belongs to each range or step for the time that it covers
there, so that no level is a multiple of itself.
Thread-safe: each query copies the data that it needs from the live window, and reads the store in
one short transaction of its own connection.

Ticks are numbered, so that no tick is missing or counted twice: the store has the latest number
that it has committed, and ticks with higher numbers come from memory. Queries about the last
moments alone do not read the store. While the store cannot be written or read, queries are answered
from memory as far as it reaches.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from headway import _native
from headway.recorder.metrics.totals import Totals
from headway.recorder.query.process import Process
from headway.recorder.receive.live import Live
from headway.recorder.records.calls import Call
from headway.recorder.records.health import Health
from headway.recorder.records.merging import merge_by_key
from headway.recorder.records.sender import Key, Sender
from headway.recorder.store import schema
from headway.recorder.store.reading import Piece, Reader, StoredProcess, unpack
from headway.recorder.store.schema import PROCESS_LEVELS
from headway.recorder.store.selection import Selection

# Ranges up to this length are answered from memory alone, if memory covers them.
MEMORY_ONLY_S = 90.0
MIN_STEP_S = 0.001
# Limits the effect of a process with a long interval on the resolution of charts.
MAX_INTERVAL_S = 60.0
WIDEST_S = PROCESS_LEVELS[-1].width_s
NOBODY = Key("", 0, 0.0)
UNREADABLE = (sqlite3.Error, OSError, schema.WrongStore)


class Step(NamedTuple):
    """The sum of the records of a step, or `None` without any. `heard` is the number of processes
    that reported, if the records tell."""

    time: float
    record: bytes | None
    heard: int | None


class NoRecording(Exception):
    """No recording is open under that name."""


class History:
    """Answers the queries of the site, `top` and OTLP."""

    def __init__(
        self,
        live: Live | None = None,
        senders: Callable[[], list[Sender]] = list,
        reader: Reader | None = None,
        recordings: Mapping[str, Reader] | None = None,
        health: Callable[[], Health] = Health,
        store_is_well: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        totals: Totals | None = None,
    ) -> None:
        self._live = live
        self._senders = senders
        self._reader = reader
        self._recordings = dict(recordings or {})
        self._health = health
        self._store_is_well = store_is_well
        self._clock = clock
        # The sums since the recorder began, which do not depend on a range.
        self.totals = totals

    def close(self) -> None:
        """Closes the store and the recordings."""
        for reader in (self._reader, *self._recordings.values()):
            if reader is not None:
                reader.close()

    def now(self) -> float:
        return self._clock()

    def recordings(self) -> list[str]:
        return sorted(self._recordings)

    def health(self) -> Health:
        return self._health()

    @property
    def listens_since(self) -> float:
        """When the recorder began to listen. Memory has no older data."""
        return self._live.began if self._live is not None else 0.0

    def processes(
        self, at: float | None = None, window_s: float = 60, recording: str = ""
    ) -> list[Process]:
        """The processes that reported in the `window_s` before `at` (default: now)."""
        now = self._clock()
        end = now if at is None else at
        found: dict[tuple[str, int, float], Process] = {}
        for row in self._rows(end - window_s, end, recording):
            alive = not row.ended and row.last_seen > end - window_s
            found[row.host, row.pid, row.started] = as_process(row, alive)
        for sender in self._heard_of(recording):
            if sender.last_seen >= end - window_s and sender.first_seen < end:
                found.pop((sender.host, sender.pid, 0.0), None)
                alive = sender.is_alive(now) if end >= now - 1 else sender.last_seen >= end
                found[sender.key] = as_process(sender, alive)
        return sorted(found.values(), key=lambda each: (each.host, each.group, each.pid))

    def record(self, start: float, end: float, selection: Selection) -> bytes | None:
        """The sum over processes and time, or `None` if nothing was recorded."""
        pieces = self._pieces(start, end, end - start, selection, of_groups=not selection.pids)
        return merge_by_key((None, record) for _, _, record in pieces).get(None)

    def records(self, start: float, end: float, step: float, selection: Selection) -> list[Step]:
        """The sums over processes, one for each step.

        If the remaining rows are coarser than `step`, or processes report less often, the steps are
        longer: `step_of` returns their length. They begin at multiples of their length.
        """
        of_groups = not selection.pids
        step = self.step_of(start, end, step, selection, of_groups)
        first = start // step * step
        keys: dict[int, set[Key]] = defaultdict(set)

        def noted() -> Iterator[tuple[int, bytes]]:
            for cell, key, record in self._pieces(first, end, step, selection, of_groups):
                keys[cell].add(key)
                yield cell, record

        cells = merge_by_key(noted())
        return [
            Step(
                first + cell * step,
                cells.get(cell),
                None if NOBODY in keys[cell] else len(keys[cell]),
            )
            for cell in range(steps_in(first, end, step))
        ]

    def step_of(
        self,
        start: float,
        end: float,
        step: float,
        selection: Selection,
        of_groups: bool | None = None,
    ) -> float:
        """The length of the steps of `records` for this range."""
        if step < MAX_INTERVAL_S:
            longest_s = max(self._intervals(start, end, selection), default=0.0)
            step = max(step, MIN_STEP_S, min(longest_s, MAX_INTERVAL_S))
        reader = self._reader_of(selection.recording)
        if reader is not None and not self._is_in_memory(start, selection.recording):
            with contextlib.suppress(*UNREADABLE), reader.view() as view:
                is_of_groups = not selection.pids if of_groups is None else of_groups
                step = max(step, view.resolution(start, is_of_groups))
        for level in reversed(PROCESS_LEVELS):
            if level.width_s <= step:
                # A multiple of the row width, so that no row lies in two steps.
                return -(-step // level.width_s) * level.width_s
        return step

    def begin(self, start: float, end: float, selection: Selection) -> float:
        """The time from which on the range has data: that of the first report of the selected
        processes, if it is in the range."""
        recording = selection.recording
        of_senders = [
            sender.first_seen - sender.interval_s
            for sender in self._heard_of(recording)
            if chosen(selection, sender) and sender.last_seen >= start and sender.first_seen < end
        ]
        stored = [
            row.first_seen - row.identity.get("telemetry_interval", 0.0)
            for row in self._rows(start, end, recording)
            if selection.has(row.host, row.group, row.pid)
        ]
        first = max(start, min((*of_senders, *stored), default=start))
        reader = self._reader_of(recording)
        if reader is not None and first > start:
            with contextlib.suppress(*UNREADABLE), reader.view() as view:
                return start if view.has_sums_before(first) else first
        return first

    def _intervals(self, start: float, end: float, selection: Selection) -> Iterator[float]:
        """The reporting intervals of the selected processes that the range may contain."""
        for sender in self._heard_of(selection.recording):
            if chosen(selection, sender) and sender.last_seen >= start and sender.first_seen < end:
                yield sender.interval_s
        if not self._is_in_memory(start, selection.recording):
            for row in self._rows(start, end, selection.recording):
                interval = row.identity.get("telemetry_interval")
                if isinstance(interval, float) and selection.has(row.host, row.group, row.pid):
                    yield interval

    def per_process(
        self, start: float, end: float, selection: Selection
    ) -> list[tuple[Process, bytes]]:
        """The sum over time of each process."""
        pieces = self._pieces(start, end, end - start, selection, of_groups=False)
        found = merge_by_key((key, record) for _, key, record in pieces)
        processes = self._by_key(start, end, selection)
        return [(processes[key], found[key]) for key in processes if key in found]

    def slots(
        self, start: float, end: float, step: float, selection: Selection
    ) -> list[tuple[Process, list[tuple[float, list[float] | None]]]]:
        """For each process and step, the share of time that each worker thread was in a request;
        `None` where the process did not report."""
        step = self.step_of(start, end, step, selection, of_groups=False)
        first = start // step * step
        pieces = self._pieces(first, end, step, selection, of_groups=False)
        cells = merge_by_key(((key, cell), record) for cell, key, record in pieces)
        processes = self._by_key(first, end, selection)
        have_cells = {key for key, _ in cells}
        return [
            (
                processes[key],
                [
                    (
                        first + cell * step,
                        busy_shares(cells[key, cell]) if (key, cell) in cells else None,
                    )
                    for cell in range(steps_in(first, end, step))
                ],
            )
            for key in processes
            if key in have_cells
        ]

    def events(
        self, kind: str, start: float, end: float, selection: Selection, limit: int
    ) -> list[dict[str, Any]]:
        """The latest `limit` events of a kind ("slow", "lifecycle", "gc" or "hold"), the latest
        first."""
        found: dict[tuple[Key, str], tuple[float, dict[str, Any]]] = {}
        committed = 0
        reader = self._reader_of(selection.recording)
        if reader is not None:
            try:
                with reader.view() as view:
                    committed = view.committed
                    rows = {
                        row.id: row
                        for row in view.processes(start - WIDEST_S, end + WIDEST_S)
                        if selection.has(row.host, row.group, row.pid)
                    }
                    stored = view.events(kind, start, end, set(rows), limit)
                for at, process, key, body in stored:
                    row = rows[process]
                    found[row.key, key] = (at, about(row, at, body))
            except UNREADABLE:
                committed = 0
        if self._live is not None and not selection.recording:
            for event in self._live.events(
                kind, start, end, self._after(committed), lambda each: chosen(selection, each)
            ):
                body = about(event.sender, event.time, event.body)
                found[event.sender.key, event.key] = (event.time, body)
        latest = sorted(found.values(), key=lambda each: each[0], reverse=True)
        return [body for _, body in latest[:limit]]

    def calls(self, ids: Iterable[str], recording: str) -> dict[str, Call]:
        """The calls with these identifiers and all their callers, as far as they are known."""
        live = None if recording else self._live
        found: dict[str, Call] = {}
        needed, asked = set(ids), set[str]()
        while live is not None and (wanted := needed - asked):
            asked |= wanted
            named = live.calls(wanted)
            found |= named
            needed |= {call.caller for call in named.values() if call.caller is not None}
        missing = needed - found.keys()
        reader = self._reader_of(recording)
        if missing and reader is not None:
            with contextlib.suppress(*UNREADABLE), reader.view() as view:
                found |= view.calls(missing)
        return found

    def _after(self, committed: int) -> int:
        """The number above which items come from memory; 0, for all of them, while the store cannot
        be written."""
        return committed if self._store_is_well() else 0

    def _is_in_memory(self, start: float, recording: str) -> bool:
        return self._live is not None and not recording and start >= self._live.complete_from

    def _reader_of(self, recording: str) -> Reader | None:
        if not recording:
            return self._reader
        try:
            return self._recordings[recording]
        except KeyError:
            raise NoRecording(recording) from None

    def _heard_of(self, recording: str) -> Iterable[Sender]:
        return () if recording else self._senders()

    def _rows(self, start: float, end: float, recording: str) -> list[StoredProcess]:
        reader = self._reader_of(recording)
        if reader is not None:
            with contextlib.suppress(*UNREADABLE), reader.view() as view:
                return view.processes(start, end)
        return []

    def _by_key(self, start: float, end: float, selection: Selection) -> dict[Key, Process]:
        """The processes to which the records of this range may belong, sorted."""
        now = self._clock()
        found: dict[Key, Process] = {}
        for row in self._rows(start - WIDEST_S, end + WIDEST_S, selection.recording):
            if selection.has(row.host, row.group, row.pid):
                found[row.key] = as_process(row, alive=False)
        for sender in self._heard_of(selection.recording):
            if chosen(selection, sender):
                found[sender.key] = as_process(sender, sender.is_alive(now))
        return dict(sorted(found.items(), key=lambda each: (each[1].host, each[1].group, each[0])))

    def _pieces(
        self, start: float, end: float, step: float, selection: Selection, of_groups: bool
    ) -> Iterator[tuple[int, Key, bytes]]:
        """The records that together cover the range, each with its step and its process. They are
        no wider than a step, unless finer ones are missing. `of_groups` allows records of groups;
        the key of stored rollups is then NOBODY. Stored records are unpacked one row at a time,
        because those of hours may be gigabytes."""
        live = None if selection.recording else self._live
        reader = self._reader_of(selection.recording)
        is_well = live is None or self._store_is_well()
        if self._is_in_memory(start, selection.recording) and (
            end - start <= MEMORY_ONLY_S or not is_well
        ):
            reader = None
        found: Iterable[tuple[Key, Piece]] = ()
        of_memory: Iterable[tuple[Key, Piece]] = ()
        live_from, after = start, 0
        if reader is not None:
            stored_to = end
            if live is not None and not is_well:
                # Memory has ticks that the store lacks, as far as it reaches.
                stored_to = live_from = min(end, max(start, live.complete_from))
            try:
                found, committed = _read_pieces(
                    reader, start, stored_to, step, selection, of_groups
                )
            except UNREADABLE:
                live_from = start
            else:
                after = committed if is_well else 0
        if live is not None:
            ticks = (
                live.ticks(live_from, end, after) if after else live.recent_ticks(live_from, end)
            )
            of_memory = (
                (tick.sender.key, Piece(tick.time, 0, 0, tick.record))
                for tick in ticks
                if chosen(selection, tick.sender)
            )
        for key, piece in chain(found, of_memory):
            for cell, record in steps_of(piece, start, step):
                yield cell, key, record


def _read_pieces(
    reader: Reader,
    start: float,
    end: float,
    widest_s: float,
    selection: Selection,
    of_groups: bool,
) -> tuple[Iterator[tuple[Key, Piece]], int]:
    """The records of the store, and the number of the last item that it has committed."""
    with reader.view() as view:
        keys = {
            row.id: row.key
            for row in view.processes(start - WIDEST_S, end + WIDEST_S)
            if selection.has(row.host, row.group, row.pid)
        }
        processes = set(keys)
        groups = set(view.groups(selection)) if of_groups else set()
        spans = view.spans(start, end, widest_s, of_groups)
        packed = view.fetch(spans, processes, groups)
        ticks = view.ticks(start, end, processes)
        committed = view.committed
    pieces = (
        (NOBODY if of_groups and piece.width_s else keys[piece.owner], piece)
        for piece in chain(unpack(packed), ticks)
    )
    return pieces, committed


def steps_of(piece: Piece, start: float, step: float) -> list[tuple[int, bytes]]:
    """The steps from `start` on to which a record belongs, and its part in each."""
    if not piece.width_s:
        # The store may have damaged records, which are in no sum.
        with contextlib.suppress(ValueError):
            return _native.telemetry_spread(piece.record, piece.time, start, step)
    # A row that is partly outside the range is used where there are no finer ones.
    return [(max(0, int((piece.time - start) // step)), piece.record)]


def steps_in(start: float, end: float, step: float) -> int:
    return max(0, -int((start - end) // step))


def chosen(selection: Selection, sender: Sender) -> bool:
    return selection.has(sender.host, sender.group, sender.pid)


def as_process(source: StoredProcess | Sender, alive: bool) -> Process:
    return Process(
        source.host,
        source.pid,
        source.started,
        source.group,
        source.kind,
        alive,
        source.last_seen,
        dict(source.identity),
    )


def about(source: StoredProcess | Sender, at: float, body: dict[str, Any]) -> dict[str, Any]:
    """The event with its time and the identity of its process."""
    return {
        **body,
        "time": at,
        "host": source.host,
        "pid": source.pid,
        "started": source.started,
        "group": source.group,
    }


def busy_shares(record: bytes) -> list[float] | None:
    fields = _native.telemetry_read(record)
    slots, seconds = fields.get("slots"), fields.get("process_seconds")
    if not slots or not seconds:
        return None
    return [min(1.0, slot["busy"] / seconds) for slot in slots]
