"""Reads the input of a prediction: a server's telemetry, or the report of a program.

A recording is about one process group that served under one configuration and under a steady load,
so that its figures belong together. If it does not, one line says why, and the exit status is 1. If
the file is not a recording at all, the exit status is 2. This module does not know how a recording
is used.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NoReturn

from headway import _native
from headway.errors import CommandError, reason_of
from headway.meter.report_file import read_report
from headway.recorder.records.configuration import configure, label
from headway.recorder.records.summary import Record, is_exact, values
from headway.recorder.store import schema
from headway.recorder.store.reading import FOREVER, Reader, StoredProcess, unpack
from headway.report.model import GilReport

SQLITE = b"SQLite format 3\0"
# The latest time of a recording that fits into SQLite's keys.
LATEST = 2.0**33
# With fewer requests their mean is known to a tenth at best.
LEAST_REQUESTS = 200
# The least number of reports of each process. The scatter of a recording is that between its
# reports.
LEAST_TICKS = 4
# At the ends of a load, a report is partly about the time without it.
RAMP = 0.6
# The largest ratio of the first and the second half's load. More is another load.
STEADY = 1.5
# The share of the window during which a process must have existed.
PRESENT = 0.9
# The share of the time that the GIL was held that must belong to requests.
LEAST_SERVED = 0.85
THROTTLED = 0.02


class Unfit(CommandError):
    """The recording cannot support a prediction. The text gives the reason."""


@dataclass(frozen=True)
class Worker:
    """A process that serves: its reports within the window, in order."""

    pid: int
    ticks: tuple[bytes, ...]

    @cached_property
    def record(self) -> Record:
        return total(self.ticks)


@dataclass(frozen=True)
class Recording:
    """The records of one process group in a steady window of `seconds`."""

    group: str
    workers: tuple[Worker, ...]
    threads: int
    policy: str
    switch_interval_s: float
    cores: int
    seconds: float

    @property
    def name(self) -> str:
        return f"{len(self.workers)}x{self.threads}"


def total(ticks: Iterable[bytes]) -> Record:
    return _native.telemetry_read(_native.telemetry_merge(list(ticks)))


def read(path: str) -> Recording | GilReport:
    """A recording of a server, or a report of `headway run`. Raises CommandError."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(SQLITE))
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise CommandError(f"--from {path!r}: {reason}", exit_code=2) from None
    if start != SQLITE:
        return read_program(path)
    return read_store(path)


def read_program(path: str) -> GilReport:
    try:
        return read_report(path)
    except CommandError:
        raise CommandError(
            f"--from {path!r}: it is neither a store of `headway telemetry --store FILE` nor a "
            "report of `headway run --json FILE`",
            exit_code=2,
        ) from None


def read_store(path: str) -> Recording:
    rows, pieces = read_pieces(path)
    served: dict[int, list[tuple[float, bytes, Record]]] = defaultdict(list)
    for at, owner, packed in pieces:
        served[owner].append((at, packed, _native.telemetry_read(packed)))
    groups = {
        (row.host, row.group)
        for row in rows
        if any(record.get("request_count") for _, _, record in served[row.id])
    }
    if not groups:
        unfit(path, "no process of it reported requests")
    if len(groups) > 1:
        names = ", ".join(sorted(group or "(no group)" for _, group in groups))
        unfit(path, f"{len(groups)} process groups are in it ({names}), and one can be predicted")
    [(host, group)] = groups
    found = {
        row.id: (row.pid, sorted(served[row.id], key=lambda each: each[0]))
        for row in rows
        if (row.host, row.group) == (host, group) and served[row.id]
    }
    workers, seconds = steady(path, list(found.values()))
    recorded = total(tick for worker in workers for tick in worker.ticks)
    check(path, recorded)
    check_requests(path, workers)
    return Recording(
        group,
        workers,
        int(values(recorded, "request_threads_maximum")[0]),
        str(values(recorded, "policy")[0]),
        float(values(recorded, "switch_interval")[0]),
        max(1, round(values(recorded, "cpu_cores", 1.0)[0])),
        seconds,
    )


def read_pieces(path: str) -> tuple[list[StoredProcess], list[tuple[float, int, bytes]]]:
    """The processes, and their reports at the finest level that is left: end, process, record."""
    reader = Reader(path)
    try:
        with reader.view() as view:
            rows = view.processes(0, FOREVER)
            ids = {row.id for row in rows}
            spans = view.spans(0, LATEST, 0, of_groups=False)
            packed = view.fetch(spans, ids, set())
            ticks = view.ticks(0, LATEST, ids)
        pieces = [*unpack(packed), *ticks]
    except schema.WrongStore as error:
        raise CommandError(f"--from {path!r}: the file {error}", exit_code=2) from None
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"--from {path!r}: {error}", exit_code=2) from None
    finally:
        reader.close()
    return rows, [(piece.time + piece.width_s, piece.owner, piece.record) for piece in pieces]


def steady(
    path: str, processes: Sequence[tuple[int, list[tuple[float, bytes, Record]]]]
) -> tuple[tuple[Worker, ...], float]:
    """The part of each process between the beginning and the end of the load."""
    rates = [rate(record) for _, ticks in processes for _, _, record in ticks]
    usual = median([each for each in rates if each] or [0.0])
    at_work = [
        [at for at, _, record in ticks if rate(record) >= RAMP * usual] for _, ticks in processes
    ]
    first = max((times[0] for times in at_work if times), default=0.0)
    last = min((times[-1] for times in at_work if times), default=0.0)
    workers = []
    for pid, ticks in processes:
        # The first report also covers time before the load, and the last one time after it.
        within = [each for each in ticks if first < each[0] < last]
        seconds = sum(record.get("process_seconds", 0.0) for _, _, record in within)
        if not within or seconds < PRESENT * (last - first) - 2 * seconds / len(within):
            unfit(
                path,
                "processes came or went while it was recorded; take a part away with "
                "`headway telemetry --export FILE --from TIME --to TIME`",
            )
        workers.append(Worker(pid, tuple(packed for _, packed, _ in within)))
        if len(within) < LEAST_TICKS:
            unfit(
                path,
                f"process {pid} reported {len(within)} times under load, and at least "
                f"{LEAST_TICKS} are needed",
            )
    check_steady(path, workers)
    return tuple(workers), last - first


def rate(record: Record) -> float:
    seconds = record.get("process_seconds", 0.0)
    return float(record.get("request_count", 0) / seconds) if seconds else 0.0


def check_steady(path: str, workers: Sequence[Worker]) -> None:
    halves = []
    for cut in (slice(None, len(workers[0].ticks) // 2), slice(len(workers[0].ticks) // 2, None)):
        halves.append(sum(rate(total(worker.ticks[cut])) for worker in workers))
    low, high = sorted(halves)
    if high > STEADY * max(low, 1e-9):
        unfit(
            path,
            f"the load changed from {halves[0]:.0f} to {halves[1]:.0f} requests/s; take a steady "
            "part away with `headway telemetry --export FILE --from TIME --to TIME`",
        )


def check(path: str, recorded: Record) -> None:
    """Checks that the recording has one configuration, and the measurements that a prediction
    needs."""
    checks: tuple[tuple[bool, Callable[[], str]], ...] = (
        (
            "disabled" in values(recorded, "gil_mode"),
            lambda: "it is of a free-threaded build, whose threads wait for no GIL",
        ),
        (
            not is_exact(recorded)
            or not recorded.get("gils")
            or "gil_wait_time_histogram" not in recorded,
            lambda: (
                "no waits for the GIL were measured; mod_wsgi and a server without its meter "
                "do not know them"
            ),
        ),
        (
            any(len(values(recorded, each)) > 1 for each in SHAPE),
            lambda: (
                f"several configurations are in it ({label(configure(recorded, 0.0))}); take "
                "one away with `headway telemetry --export FILE --from TIME --to TIME`"
            ),
        ),
        (
            any(not values(recorded, each) for each in SHAPE),
            lambda: "it does not say what was configured",
        ),
        (
            len(recorded.get("gils", ())) > 1,
            lambda: "its processes have several GILs each, which are not predicted",
        ),
        (
            recorded.get("cgroup_throttled_periods", 0)
            > THROTTLED * max(1, recorded.get("cgroup_periods", 0)),
            lambda: "the cgroup's CPU limit stopped its processes",
        ),
    )
    for is_so, text in checks:
        if is_so:
            unfit(path, text())


SHAPE = ("request_threads_maximum", "policy", "switch_interval")


def check_requests(path: str, workers: Sequence[Worker]) -> None:
    for worker in workers:
        record = worker.record
        requests = record.get("request_count", 0)
        if requests < LEAST_REQUESTS:
            unfit(
                path,
                f"process {worker.pid} served {requests} requests in the steady part, and at "
                f"least {LEAST_REQUESTS} are needed",
            )
        held_s = sum(row.get("gil_held", 0.0) for row in record["gils"])
        of_requests_s = record["gil_held_time_histogram"]["sum"]
        if of_requests_s < LEAST_SERVED * held_s:
            unfit(
                path,
                f"threads that served no request held the GIL of process {worker.pid} for "
                f"{1 - of_requests_s / held_s:.0%} of the time that it was held",
            )


def unfit(path: str, why: str) -> NoReturn:
    raise Unfit(f"--from {path!r} cannot support a prediction: {why}")
