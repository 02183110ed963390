"""The figures of a record that verdicts go by, each with one meaning.

A record is that of a process or of a process group. Groups that differ are judged one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from headway.recorder.records import histogram
from headway.recorder.records.configuration import Config, Number
from headway.recorder.records.histogram import Histogram
from headway.recorder.records.summary import (
    PARKED,
    PER_REQUEST,
    PerRequest,
    Record,
    Summary,
    distribution,
    loop_seconds,
    values,
)
from headway.report import diagnosis, thresholds
from headway.report.diagnosis import Contention, Parking
from headway.report.event_loops import PARTS, Lateness

# The number of cores where no process reports it.
_UNKNOWN_CORES = 1.0


class Hold(TypedDict, total=False):
    """A long hold of the GIL, as its event reports it. Times are in seconds."""

    time: float
    host: str
    group: str
    pid: int
    hold_thread: str
    hold_endpoint: str
    hold_stack: str
    hold_duration: float
    hold_waited: float
    hold_cpu: float
    hold_present: int


class GilRow(TypedDict, total=False):
    """The row of a GIL in a record, as far as verdicts go by it. Times are in seconds."""

    gil_name: str
    gil_wall: float
    gil_held: float
    gil_handoff: float


@dataclass(frozen=True)
class DiagnosisInputs:
    """A record with its summary, its configuration, and the long holds of the same time. All
    properties are derived from these."""

    record: Record
    summary: Summary
    config: Config
    long_holds: tuple[Hold, ...] = ()

    @property
    def seconds(self) -> float:
        return self.summary["period"]

    @property
    def requests(self) -> int:
        return self.summary["requests"]

    @property
    def rps(self) -> float:
        return self.summary["rps"]

    @property
    def processes(self) -> float:
        return self.summary["processes"]

    @property
    def process_seconds(self) -> float:
        return self.seconds * self.processes

    @cached_property
    def exact(self) -> bool:
        """Whether every take of the GIL is in the record. mod_wsgi records some waits, and does not
        report whether there is a GIL."""
        return self.summary["exact"]

    @property
    def free_threading(self) -> bool:
        return self.config["gil_mode"] == "disabled"

    @property
    def serves(self) -> bool:
        """Whether the processes serve requests; a program under `headway run` does not."""
        return "run" not in values(self.record, "process_kind")

    @property
    def threads(self) -> int:
        """Worker threads of one process."""
        return int(most(self.config["threads"], 0.0))

    @property
    def cores(self) -> float:
        """The number of cores that all the processes together can use at a time."""
        cores = most(self.config["cores"], _UNKNOWN_CORES)
        return min(cores, most(self.config["cpu_limit"], cores))

    @property
    def cores_known(self) -> bool:
        return self.config["cores"] is not None

    @property
    def cpu(self) -> float:
        return self.summary["cpu"]

    @property
    def cores_of_others(self) -> float | None:
        """The cores that other processes use of those that these may use; None if not known."""
        busy = self.record.get("cores_busy")
        if busy is None or not self.process_seconds:
            return None
        return max(0.0, float(busy) / self.process_seconds - self.cpu)

    @property
    def cores_left(self) -> float:
        """The cores that these may use while other processes use as much as now."""
        free = most(self.config["cores"], _UNKNOWN_CORES) - (self.cores_of_others or 0.0)
        return max(self.cpu, min(self.cores, free))

    @property
    def interval(self) -> float | None:
        """The switch interval; the longest of several."""
        return most(self.config["switch_interval"], 0.0) or None

    @property
    def scheduled(self) -> bool:
        """Whether a policy other than CPython's own decides which thread gets the GIL."""
        policies = self.config["policy"] or "interval"
        return "interval" not in ([policies] if isinstance(policies, str) else policies)

    # The GIL.

    @cached_property
    def gil(self) -> GilRow | None:
        """The row of the GIL that is in use most; `None` without one."""
        if self.free_threading or self.summary["gil"] is None:
            return None
        rows = [row for row in self.record.get("gils", ()) if row.get("gil_wall", 0.0) > 0]
        return max(rows, key=gil_use, default=None)

    @property
    def gil_use(self) -> float:
        """Share of its life in which that GIL was held or handed over."""
        return gil_use(self.gil) if self.gil else 0.0

    @cached_property
    def gil_count(self) -> int:
        """The number of a process's GILs in use, those at least a fifth as much as the busiest."""
        rows = [] if self.gil is None else self.record.get("gils", ())
        least = self.gil_use / 5
        used = [row for row in rows if row.get("gil_wall", 0.0) > 0 and gil_use(row) > least]
        return max(1, len(used))

    @cached_property
    def waits(self) -> Histogram | None:
        """Waits for any GIL, take by take."""
        return None if self.free_threading else distribution(self.record, "take_wait")

    @cached_property
    def holds(self) -> Histogram | None:
        return None if self.free_threading else distribution(self.record, "hold")

    @property
    def waiting(self) -> float:
        """Threads of one process that wait for a GIL, on average."""
        return self.waits["sum"] / self.process_seconds if self.waits else 0.0

    @cached_property
    def counted_holds(self) -> tuple[Hold, ...]:
        """The holds that others waited for so long that they count as long."""
        return tuple(hold for hold in self.long_holds if waited_for(hold) >= self.counts_from(hold))

    def counts_from(self, hold: Hold) -> float:
        return diagnosis.long_hold_s(self.interval, hold.get("hold_cpu"))

    @cached_property
    def findings(self) -> list[str]:
        """The findings of `headway.report.diagnosis` on that GIL, the most of the waiting first."""
        return diagnosis.findings(self.contention) if self.contention else []

    @cached_property
    def collections(self) -> Histogram | None:
        """The passes of the garbage collector."""
        return distribution(self.record, "gc_pause")

    @property
    def _divided(self) -> list[dict[str, float]] | None:
        """The rows of threads whose waits the meter has divided by what they were behind; None if
        it has not."""
        rows = [row for row in self.record.get("threads", ()) if "thread_preventable" in row]
        return rows or None

    def waited_behind(self, part: str) -> float | None:
        """The sum of a part of the threads' waits: `preventable`, `unanswered`, `collection`; None
        if it is not known."""
        rows = self._divided
        return None if rows is None else sum(row.get(f"thread_{part}", 0.0) for row in rows)

    @property
    def victim(self) -> tuple[str, float] | None:
        """The thread with the most waiting that a policy could have prevented, and how much. None
        under a policy, where waits of short work count only if they last for whole switch
        intervals."""
        if self.scheduled:
            return None
        row = max(self._divided or (), key=lambda row: row["thread_preventable"], default=None)
        return None if row is None else (str(row.get("thread_name")), row["thread_preventable"])

    @cached_property
    def contention(self) -> Contention | None:
        """The figures of the GIL that is in use most; None without one."""
        if self.gil is None:
            return None
        waits, holds = self.waits, self.holds
        needed, delayed = self._needed_by_a_thread, None
        if self.serves:
            needs, delays = self.summary["gil_held"], self.summary["gil_wait"]
            needed = needs["p50"] if needs else math.inf
            # Where a policy lets short work go first, the long waits are those of work that
            # computes, so half of the requests have to wait for long.
            delayed = delays["p50" if self.scheduled else "p90"] if delays else 0.0
        whole_s = diagnosis.whole_interval_s(self.interval or 0.0)
        waited_s = waits["sum"] if waits else 0.0
        kept_s = max(map(waited_for, self.counted_holds), default=0.0)
        waited_for_kept_s = min(sum(map(waited_for, self.counted_holds)), waited_s)
        collection_s = self.waited_behind("collection") or 0.0
        longest_collection_s = self.collections["max"] if self.collections else 0.0
        unanswered_s = self.waited_behind("unanswered")
        if unanswered_s is not None:
            off_core_s = self.waited_behind("off_core") or 0.0
            waited_for_kept_s = unanswered_s + (off_core_s if self.counted_holds else 0.0)
            # An event of a hold does not say what its thread did.
            is_pass = longest_collection_s >= thresholds.LONG_HOLD_CPU.value * kept_s
            if collection_s >= waited_for_kept_s and is_pass:
                kept_s = 0.0
        return Contention(
            interval_s=self.interval,
            wall_s=self.process_seconds,
            used_s=self.gil_use * self.process_seconds,
            waited_s=waited_s,
            held_s=holds["sum"] if holds else 0.0,
            interval_waits_s=histogram.time_from(waits, whole_s),
            interval_holds_s=histogram.time_from(holds, whole_s),
            needed_s=needed,
            delayed_s=delayed,
            kept_s=kept_s,
            waited_for_kept_s=waited_for_kept_s,
            preventable_s=None if self.scheduled else self.waited_behind("preventable"),
            collection_s=collection_s,
            longest_collection_s=longest_collection_s,
        )

    @property
    def _needed_by_a_thread(self) -> float:
        """How long the thread that waited most holds the GIL at a time, on average; where no thread
        is known, the median of all holds."""
        rows = [row for row in self.record.get("threads", ()) if row.get("thread_takes")]
        waiter = max(rows, key=lambda row: row.get("thread_waited", 0.0), default=None)
        if waiter is not None:
            return float(waiter.get("thread_held", 0.0) / waiter["thread_takes"])
        return float(self.holds["p50"]) if self.holds else math.inf

    @cached_property
    def parking(self) -> Parking | None:
        """The figures of processes without a GIL; None where there is one, and where the processes
        do not report how long they waited for locks."""
        if not self.free_threading or PARKED not in self.record:
            return None
        rows = self.record.get("threads", ())
        waits = distribution(self.record, "parked")
        return Parking(
            wall_s=self.process_seconds,
            cpu_s=self.cpu * self.seconds,
            contended_s=histogram.time_below(waits, thresholds.LOCK_WAIT_S.value),
            stopped_s=sum(
                row.get("thread_suspended", 0.0) + row.get("thread_stopping", 0.0) for row in rows
            ),
        )

    @cached_property
    def lateness(self) -> Lateness | None:
        """The late iterations of the event loops; None without loops."""
        loops, iterations = self.summary["loops"], self.summary["loop_iteration"]
        if loops is None:
            return None
        computed_s, waited_s, blocked_s = (self._late_s(part) for part in PARTS)
        return Lateness(
            watched_s=loop_seconds(self.record),
            longest_s=iterations["max"] if iterations else 0.0,
            limit_s=loops["late_limit"],
            late=int(self.record.get("loop_late", 0)),
            parts_s=(computed_s, waited_s, blocked_s),
            late_ran_blocked_s=float(self.record.get("loop_late_ran_blocked", 0.0)),
            present_s=loops["iterating"],
        )

    def _late_s(self, part: str) -> float:
        return float(self.record.get(f"loop_late_{part}", 0.0))

    # Means over requests, in seconds.

    def mean(self, name: PerRequest) -> float | None:
        found = self.summary[name]
        return found["mean"] if found else None

    @property
    def held_per_request(self) -> float | None:
        """GIL time per request, other work of the process included: its reciprocal is the rate of
        requests that fills a GIL."""
        if not self.requests or self.gil is None:
            return None
        held = sum(row.get("gil_held", 0.0) for row in self.record.get("gils", ()))
        return held / self.requests if held > 0 else None

    @property
    def cpu_per_request(self) -> float | None:
        """CPU time of the processes for one request, the server's own work included."""
        if not self.requests or self.cpu <= 0 or self.seconds <= 0:
            return None
        return self.cpu * self.seconds / self.requests

    @property
    def away(self) -> float | None:
        """The share of application time in which a request neither ran on a core nor waited for the
        GIL."""
        application = self.mean("application")
        if not application:
            return None
        cpu = self.mean("cpu_per_request")
        if cpu is None:
            busy_threads = self.summary["busy"] * self.threads
            if not busy_threads:
                return None
            cpu = application * min(1.0, self.summary["cpu_per_process"] / busy_threads)
        waited = self.mean("gil_wait") or 0.0
        return max(0.0, 1 - (cpu + waited) / application)

    @property
    def on_a_core(self) -> float | None:
        """CPU time as a share of the time that GILs were held. Well below one, holders were off the
        processor: other programs ran, or a call blocked with the GIL held."""
        held = sum(row.get("gil_held", 0.0) for row in self.record.get("gils", ()))
        return self.cpu * self.seconds / held if held > 0 and self.gil is not None else None

    def error(self, *names: PerRequest) -> float | None:
        """Twice the standard error of the mean of the first distribution that the record has, as a
        share of the mean."""
        for name in names:
            error = histogram.mean_error(self.record.get(PER_REQUEST[name]))
            if error is not None:
                return 2 * error
        return None


def gil_use(row: GilRow) -> float:
    return float((row.get("gil_held", 0.0) + row.get("gil_handoff", 0.0)) / row["gil_wall"])


def waited_for(hold: Hold) -> float:
    """How long another thread waited for a hold. Its wait may have begun before the hold."""
    return min(hold.get("hold_waited", 0.0), hold.get("hold_duration", 0.0))


def most(value: Number, default: float) -> float:
    """The largest of the values that a configuration has under a name."""
    if value is None:
        return default
    return max(map(float, value if isinstance(value, list) else [value]), default=default)
