"""The running sums of each process group's reports since its first one: the counters of `metrics`.

They outlive the processes that they count, so they never decrease while there are reports. A group
that is silent for `KEPT_S` is forgotten: each pod is a host with groups of its own, and a recorder
must not show all pods that ever were. A restarted recorder, and a group that reports again after it
was forgotten, count from 0 again, as Prometheus and OTLP expect of a restart. The receiving
threads write the sums and any thread may read them; a reader delays a writer for at most the copy
of one group.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable

from headway import _native
from headway.recorder.metrics.definitions import COUNTERS, HISTOGRAMS, Spread, distribution_of
from headway.recorder.records.merging import merge
from headway.recorder.records.received import Tick
from headway.recorder.records.summary import Record

# Processes choose the names of their groups. Beyond this number, all further groups share OTHER.
MAX_GROUPS = 1000
OTHER = ("(other)", "(other)")
# Twice the longest interval that a living process may have.
KEPT_S = 7200.0
# Ticks are cheaper to add in batches. Waiting ticks are added at the next read at the latest.
BATCH = 64

Group = tuple[str, str]


class Buckets:
    """A histogram with fixed bounds, and one more bucket for longer durations."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def copy(self) -> Buckets:
        other = Buckets(self.bounds)
        other.counts, other.sum = list(self.counts), self.sum
        return other


class Sums:
    """The sums of one process group. The keys of `counters` are a metric's name and the values of
    its labels."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.counters: dict[tuple[str, tuple[str, ...]], float] = {}
        self.histograms: dict[str, Buckets] = {}

    def add(self, record: Record) -> None:
        for counter in COUNTERS:
            for labels, value in counter.read(record):
                key = (counter.metric.name, labels)
                # A wrong value in a tick must not decrease a counter.
                self.counters[key] = self.counters.get(key, 0) + max(0, value)
        for spread in HISTOGRAMS:
            self._add_histogram(spread, record)

    def _add_histogram(self, spread: Spread, record: Record) -> None:
        found = distribution_of(record, spread)
        if found is None:
            return
        buckets = self.histograms.setdefault(spread.metric.name, Buckets(spread.bounds))
        for bound, count in found["buckets"]:
            buckets.counts[bisect_left(spread.bounds, bound)] += count
        buckets.sum += found["sum"]

    def copy(self) -> Sums:
        other = Sums(self.started)
        other.counters = dict(self.counters)
        other.histograms = {name: each.copy() for name, each in self.histograms.items()}
        return other


class Totals:
    """The sums of all groups."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sums: dict[Group, Sums] = {}
        # The time of the last report of each.
        self._heard: dict[Group, float] = {}
        self._waiting: dict[Group, list[bytes]] = {}
        self._highest: dict[str, float] = {}
        self.started = clock()

    def add(self, ticks: Iterable[Tick]) -> None:
        now = self._clock()
        with self._lock:
            for tick in ticks:
                group = (tick.sender.host, tick.sender.group)
                if group not in self._sums:
                    self._forget(now)
                    if len(self._sums) >= MAX_GROUPS:
                        group = OTHER
                    self._sums.setdefault(group, Sums(now))
                self._heard[group] = now
                waiting = self._waiting.setdefault(group, [])
                waiting.append(tick.record)
                if len(waiting) >= BATCH:
                    self._add_up(group)

    def of_groups(self) -> dict[Group, Sums]:
        """Copies of the sums by group. Each copy is consistent."""
        with self._lock:
            self._forget(self._clock())
            groups = sorted(self._sums)
        found = {}
        for group in groups:
            with self._lock:
                # Another reader, or a new group, may have made it forgotten meanwhile.
                if group in self._sums:
                    self._add_up(group)
                    found[group] = self._sums[group].copy()
        return found

    def _forget(self, now: float) -> None:
        for group in [each for each, heard in self._heard.items() if now - heard > KEPT_S]:
            del self._sums[group], self._heard[group]
            self._waiting.pop(group, None)

    def highest(self, name: str, value: float) -> float:
        """The highest value so far of a count that may be corrected downwards, when datagrams that
        seemed lost arrive late. A counter must not decrease."""
        with self._lock:
            self._highest[name] = value = max(value, self._highest.get(name, 0))
        return value

    def _add_up(self, group: Group) -> None:
        waiting = self._waiting.pop(group, None)
        if waiting:
            self._sums[group].add(_native.telemetry_read(merge(waiting)))
