"""Running sums of what every process group has reported since the recorder heard of it first: the
counters of `metrics`.

They outlive the processes that they count, so they never fall while the recorder runs; a recorder
that starts anew counts from 0 again, as Prometheus and OTLP expect of a restart. Written by the
threads that receive, read by any; a reader holds up a writer for one group's copy at most.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable

from headway import _native
from headway.recorder.metrics.definitions import COUNTERS, HISTOGRAMS, Spread, distribution_of
from headway.recorder.receive.live import Tick
from headway.recorder.records.summary import Record
from headway.recorder.store.rollup import merge

# Groups are named by who reports; whoever makes names up gets one row for all further ones.
MAX_GROUPS = 1000
OTHER = ("(other)", "(other)")
# Ticks are cheaper to add up together; they wait for no longer than the next look at them.
BATCH = 64

Group = tuple[str, str]


class Buckets:
    """A histogram on fixed bounds, with one bucket more for what is longer than all."""

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
    """One process group's. `counters` has a metric's name and its labels' values as the key."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.counters: dict[tuple[str, tuple[str, ...]], float] = {}
        self.histograms: dict[str, Buckets] = {}

    def add(self, record: Record) -> None:
        for counter in COUNTERS:
            for labels, value in counter.read(record):
                key = (counter.metric.name, labels)
                # What is wrong with a tick must not make a counter fall.
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
    """Of all groups."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sums: dict[Group, Sums] = {}
        self._waiting: dict[Group, list[bytes]] = {}
        self._highest: dict[str, float] = {}
        self.started = clock()

    def add(self, ticks: Iterable[Tick]) -> None:
        with self._lock:
            for tick in ticks:
                group = (tick.sender.host, tick.sender.group)
                if group not in self._sums:
                    if len(self._sums) >= MAX_GROUPS:
                        group = OTHER
                    self._sums.setdefault(group, Sums(self._clock()))
                waiting = self._waiting.setdefault(group, [])
                waiting.append(tick.record)
                if len(waiting) >= BATCH:
                    self._add_up(group)

    def of_groups(self) -> dict[Group, Sums]:
        """Copies, each of one moment."""
        with self._lock:
            groups = sorted(self._sums)
        found = {}
        for group in groups:
            with self._lock:
                self._add_up(group)
                found[group] = self._sums[group].copy()
        return found

    def highest(self, name: str, value: float) -> float:
        """The highest value so far of a count that may be put right downwards: what seemed lost
        and came late. A counter may not fall."""
        with self._lock:
            self._highest[name] = value = max(value, self._highest.get(name, 0))
        return value

    def _add_up(self, group: Group) -> None:
        waiting = self._waiting.pop(group, None)
        if waiting:
            self._sums[group].add(_native.telemetry_read(merge(waiting)))
