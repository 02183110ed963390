"""Receives datagrams and hands each to the live window and the store.

One thread reads the socket. A datagram that is malformed or refused is counted by its reason and
dropped.
"""

from __future__ import annotations

import os
import re
import select
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable

from headway import _native
from headway.recorder.metrics.totals import Totals
from headway.recorder.receive.datagrams import DatagramReceiver
from headway.recorder.receive.live import Live
from headway.recorder.receive.senders import Refused, Senders, source_of
from headway.recorder.records.calls import Call
from headway.recorder.records.events import KNOWN_KINDS, Limiter, find_events
from headway.recorder.records.health import Health
from headway.recorder.records.received import Event, Tick
from headway.recorder.records.sender import Sender
from headway.recorder.store.store import Store
from headway.report import columns

# Datagrams that arrive within this time are processed together.
PATIENCE_NS = 100_000_000
# The most datagrams that are processed before the lock is released.
BURST = 64
TIDY_INTERVAL_S = 10.0
# The pause after reception failed, which it may do for long.
RETRY_S = 1.0
# The key in `malformed` of datagrams that the recorder failed to process.
DEFECT = "internal error"
MAX_REASON = 200
# A datagram, its sender's pid and uid if the kernel attests them, and whether it was truncated.
Arrived = tuple[bytes, "tuple[int, int] | None", bool]


class Recorder:
    """Receives datagrams from `start` to `stop`. Its data may be read from any thread."""

    def __init__(
        self,
        datagrams: DatagramReceiver | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.time,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._datagrams = datagrams
        self.store = store
        self._clock = clock
        self._tell = tell
        self._lock = threading.Lock()
        # Derived from the time, so that numbers keep growing across restarts.
        self._number = max(time.time_ns() // 1000, store.committed + 1 if store else 0)
        self._limiter = Limiter()
        self._tidied = 0.0
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="headway-recorder", daemon=True)
        self.live = Live()
        self.totals = Totals(clock)
        self.senders = Senders(socket.gethostname())
        self.received = 0
        self.malformed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.oversized = 0

    def start(self) -> None:
        self.live.begin(self._clock())
        if self.store is not None:
            self.store.start()
        if self._datagrams is not None:
            self._thread.start()

    def stop(self) -> None:
        """Processes and commits the datagrams that have arrived, and ends."""
        os.write(self._wake_write, b"!")
        if self._thread.is_alive():
            self._thread.join()
        if self._datagrams is not None:
            self._datagrams.close()
        if self.store is not None:
            self.store.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        is_ending = has_failed = False
        while not is_ending:
            try:
                is_ending = self._receive()
            except Exception as error:
                # The thread goes on after any error, because the site does, too.
                if not has_failed:
                    self._tell(
                        f"nothing can be received ({_described(error)}); it is tried again every "
                        f"{RETRY_S:g} s"
                    )
                has_failed = True
                is_ending = bool(select.select([self._wake_read], [], [], RETRY_S)[0])
            else:
                if has_failed:
                    self._tell("datagrams are received again")
                has_failed = False

    def _receive(self) -> bool:
        """Takes the datagrams that arrive next. Returns whether the recorder ends."""
        assert self._datagrams is not None, "started only with a socket"
        arrived, is_ending, refused = _native.telemetry_arrived(
            self._datagrams.socket.fileno(), self._wake_read, PATIENCE_NS
        )
        if refused:
            with self._lock:
                self.received += refused
                self.refused["rate"] += refused
        # Other threads can take the lock between two bursts.
        for start in range(0, len(arrived), BURST):
            try:
                self.take(arrived[start : start + BURST])
            except Exception as error:
                with self._lock:
                    self._count_defect(error)
        return is_ending

    def take(self, arrived: list[Arrived]) -> None:
        if not arrived:
            return
        ticks: list[Tick] = []
        events: list[Event] = []
        now = self._clock()
        with self._lock:
            for datagram, credentials, is_cut in arrived:
                self.received += 1
                if is_cut:
                    self.oversized += 1
                    self.malformed["oversized"] += 1
                    continue
                try:
                    self._take_one(datagram, credentials, now, ticks, events)
                except Exception as error:
                    self._count_defect(error)
            self.live.add(ticks, events, now)
            self.totals.add(ticks)
            if self.store is not None and (ticks or events):
                self.store.add(sorted([*ticks, *events], key=lambda item: item.number))
            if now - self._tidied >= TIDY_INTERVAL_S:
                self._tidied = now
                self.senders.forget_silent(now)

    def _take_one(
        self,
        datagram: bytes,
        credentials: tuple[int, int] | None,
        now: float,
        ticks: list[Tick],
        events: list[Event],
    ) -> None:
        try:
            kind, said_pid, sequence, stamp, fields, record = _native.telemetry_receive(datagram)
        except ValueError as error:
            self.malformed[reason_for(str(error))] += 1
            return
        if kind not in KNOWN_KINDS:
            self.malformed["unknown kind"] += 1
            return
        source = source_of(credentials, said_pid)
        try:
            sender, stamp = self.senders.identify(
                kind, said_pid, sequence, stamp, fields, now, source
            )
        except Refused as error:
            self.refused[str(error)] += 1
            return
        if credentials is not None and not sender.pid_confirmed:
            # The pid is 0 if the sender is in a PID namespace that is invisible from here. Once the
            # process itself has reported, its supervisor may report its death.
            sender.pid_confirmed = credentials[0] == said_pid
        if record is not None:
            names = sender.holder_names
            record, named = _native.telemetry_add_holders(names, datagram, record)
            self._number += 1
            ticks.append(Tick(self._number, stamp, sender, record, [Call(*each) for each in named]))
        for found in find_events(kind, stamp, fields):
            if self._limiter.passes(sender, found, now):
                self._number += 1
                events.append(Event(self._number, found.kind, found.time, sender, *found[2:]))

    def _count_defect(self, error: Exception) -> None:
        """Counts a datagram that a defect of the recorder keeps from being processed. Reception
        goes on, and the log says so once."""
        if DEFECT not in self.malformed:
            self._tell(
                f"a datagram could not be processed ({_described(error)}); all such datagrams are "
                f"counted as {DEFECT!r}"
            )
        self.malformed[DEFECT] += 1

    def known(self) -> list[Sender]:
        with self._lock:
            return list(self.senders)

    def health(self) -> Health:
        """The counts of datagrams that were received, refused or lost."""
        with self._lock:
            senders = self.senders
            return {
                "received": self.received,
                "malformed": sum(self.malformed.values()),
                "malformed_by_reason": dict(self.malformed),
                "refused": sum(self.refused.values()),
                "refused_by_reason": dict(self.refused),
                "sequence_gaps": senders.lost,
                "unsent": senders.unsent,
                "records_lost": senders.records_lost,
                "clocks_off": senders.clocks_off,
                "events_left_out": self._limiter.left_out,
                "short_collections_left_out": self._limiter.short_left_out,
                "processes": len(senders),
            }


def _described(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    what = columns.name(f"{type(error).__name__}: {error}", MAX_REASON)
    return f"{frame.filename}:{frame.lineno}: {what}"


def reason_for(message: str) -> str:
    """The key under which a message is counted: the message without its numbers."""
    return re.sub(r"[0-9]+", "N", message)[:80]
