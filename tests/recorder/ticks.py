"""Made-up datagrams, encoded by the real encoder, and a recorder at a clock that tests move."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from headway import _native
from headway.recorder.query.history import History
from headway.recorder.receive.receiver import Recorder
from headway.recorder.store.reading import Reader
from headway.recorder.store.selection import EVERYTHING, Selection
from headway.recorder.store.store import Store

START = 1_700_000_040.0
TICK, SLOW, STARTED, STOPPING, STOPPED, GC_EVENT = 2, 4, 5, 6, 7, 9


def tick(pid: int = 100, sequence: int = 1, stamp: float = START, **fields: Any) -> bytes:
    """A second of a process that answered ten requests in 20 ms each."""
    said: dict[str, Any] = {
        "hostname": "alpha",
        "process_group": "shop",
        "headway_version": "0.1.0",
        "process_kind": "serve",
        "process_started_stamp": START - 500,
        "sample_period": 1.0,
        "telemetry_interval": 1.0,
        "request_count": 10,
        "request_time_histogram": [(0.02, 10)],
        "memory_rss": 50_000_000,
        "cpu_user_utilization": 0.25,
        "request_threads_maximum": 2,
        "request_threads_busy_time": [0.5, 0.25],
        "request_threads_completed": [6, 4],
        **fields,
    }
    said = {name: value for name, value in said.items() if value is not None}
    return _native.telemetry_encode(TICK, pid, sequence, stamp, said)


def send(path: str | Path, *datagrams: bytes) -> None:
    """To the recorder that listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, str(path))


def message(kind: int, pid: int, sequence: int, stamp: float, **fields: Any) -> bytes:
    return _native.telemetry_encode(kind, pid, sequence, stamp, fields)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class Bench:
    """A recorder without threads: what it is given is received at once, and stored when
    asked."""

    def __init__(self, path: Path | None, clock: Clock | None = None, **options: Any) -> None:
        self.clock = clock or Clock()
        self.lines: list[str] = []
        self.store = (
            Store(str(path), tell=self.lines.append, clock=self.clock, **options) if path else None
        )
        self.recorder = Recorder(None, self.store, clock=self.clock)
        self.recorder.live.begin(self.clock.now)
        store = self.store
        self.history = History(
            self.recorder.live,
            self.recorder.known,
            Reader(str(path)) if path else None,
            {},
            self.recorder.health,
            (lambda: not store.error) if store else (lambda: True),
            self.clock,
            self.recorder.totals,
        )
        self.sequence = 0

    def give(self, *datagrams: bytes) -> None:
        self.recorder.take([(each, None, False) for each in datagrams])

    def run(self, seconds: int, pids: tuple[int, ...] = (100,), **fields: Any) -> None:
        """A tick of each process every second, stored as the recorder would."""
        for _ in range(seconds):
            self.clock.now += 1
            self.sequence += 1
            self.give(*(tick(pid, self.sequence, self.clock.now, **fields) for pid in pids))
            if self.store is not None:
                self.store.write()

    def store_now(self) -> None:
        assert self.store is not None
        assert self.store.write(), self.store.error

    def settle(self) -> None:
        """Until nothing is left to be rolled up at this time."""
        assert self.store is not None
        for _ in range(200):
            self.store.write()

    def stop(self) -> None:
        self.history.close()
        self.recorder.stop()

    def requests(self, start: float, end: float, selection: Selection = EVERYTHING) -> int:
        return requests(self.history.record(start, end, selection))


def requests(record: bytes | None) -> int:
    if record is None:
        return 0
    count: int = _native.telemetry_read(record)["request_count"]
    return count
