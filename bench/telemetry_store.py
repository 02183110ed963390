"""Measures the cost of recording: 500 processes that report every second, the size of a month of
50 processes on disk, and the time that its charts take. Other numbers of processes and days show
how cost grows.

The datagrams are those of a real `headway serve` of two processes with five threads, which answer
some dozens of requests a second on four paths; they are sent again with other pids and times.

  ingest  `headway telemetry` without its site receives from --processes, each once a second, for
          --seconds; its CPU time as a share of one core. With whole minutes, rolling up is in it.
  month   a store as it is after --days of 50 processes of two groups: all its levels, as far as
          they reach back, with rows that are sums of that many of the datagrams, chosen at random,
          and then bounded as the recorder does, by age and --store-limit. Its size.
  week    in that store: the sums of 300 points of the last seven days, for all processes and for
          one; the sum of each process; and the 300 points of all days.
  holders the bytes of a month's rows with the lines and stacks that make threads wait, and without
          them, whatever --store-limit is. The same if each tick is full of lines and stacks.
  rollups in that store: the time of such a chart over an hour to a month, with each table of
          rollups left out in turn. Only with --part.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import socket
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import sitting
from crowded import crowded_ticks
from figures import Figures, number, print_targets, table, target
from reported import as_another, mean_bytes, only, read_ticks, records_of

from headway import _native
from headway.output.claim import Statement
from headway.programs import process_tree
from headway.programs.processes import ChildProgram, ProgramError
from headway.programs.progress import clear_progress, progress
from headway.recorder.query.history import History
from headway.recorder.records.merging import merge
from headway.recorder.store import reading, schema
from headway.recorder.store.encoding import pack_record, pack_ticks
from headway.recorder.store.metadata import set_mark
from headway.recorder.store.reading import Reader
from headway.recorder.store.retention import KEPT, forget_most, forget_old
from headway.recorder.store.schema import GROUP_LEVELS, LEVELS, PROCESS_LEVELS, Level, row_id
from headway.recorder.store.selection import EVERYTHING, Selection
from headway.recorder.store.store import DEFAULT_LIMIT_BYTES, transact
from headway_lab.setting import started

TICKS = 60
PROCESSES = (500,)
# A recorder takes no more from one sender.
TICKS_OF_SENDER = 20
# Beyond the pids of Linux, so that none is that of a process that sends itself.
FIRST_PID = 2**22 + 1
MONTH_PROCESSES, MONTH_GROUPS = 50, 2
DAY_S = 86_400
DAYS = (30,)
MONTH_S, WEEK_S = 30 * DAY_S, 7 * DAY_S
POINTS = 300
# How many different rows each level has; they recur.
POOL = 48
TIMEOUT_S = 60.0

MAX_CORE_SHARE = 0.1
MAX_WEEK_S = 1.0
MAX_STORE_MB = 1_000
# The rows with lines and stacks, of those without them; and the bytes of a tick for both.
MAX_HOLDERS_RATIO = 1.3
MAX_HOLDERS_BYTES = 1_024
LINES = ("line_names", "line_numbers", "line_times")
STACKS = ("calls", "stack_numbers", "stack_times")
PARTS = ("ingest", "month", "week", "holders")
ROLLUPS = "rollups"
RANGES_S = {"1 h": 3_600, "6 h": 21_600, "1 day": DAY_S, "1 week": WEEK_S, "30 days": MONTH_S}
HEADINGS = ("part", "what", "median", "lowest", "highest")


class Cell(NamedTuple):
    part: str
    what: str

    def __str__(self) -> str:
        return f"{self.part}: {self.what}"


def ingest_cell(processes: int) -> Cell:
    return Cell("ingest", f"{processes} processes, share of a core")


def measure(options: argparse.Namespace) -> sitting.Experiments:
    ticks = read_ticks(TICKS)
    records = records_of(ticks)
    print(
        f"a tick: {mean_bytes(ticks):,.0f} bytes sent, {mean_bytes(records):,.0f} recorded, "
        f"{mean_bytes([pack_record(each) for each in records]):,.0f} packed"
    )
    figures: Figures[Cell] = Figures()
    targets = []
    if "ingest" in options.part:
        counts = {ingest_cell(each): each for each in options.processes}
        for cell, found in sitting.rounds(
            "telemetry_store",
            options.rounds,
            list(counts),
            lambda cell: ingest(ticks, options.seconds, counts[cell]),
        ):
            figures.record(cell, value=found)
        most = max(counts.values())
        share = figures.median(ingest_cell(most), "value")
        targets.append(
            target(
                f"{most} processes at 1 Hz, share of a core", share, MAX_CORE_SHARE, at_most=True
            )
        )
    if {"month", "week", ROLLUPS} & set(options.part):
        for days in options.days:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                path = Path(folder) / "store.sqlite"
                targets += measure_days(path, days, records, options, figures)
    if "holders" in options.part:
        targets += compare_holders(ticks)
    rows = []
    for cell in figures.cells():
        values = figures.values(cell, "value")
        middle, low, high = figures.median(cell, "value"), min(values), max(values)
        rows.append((cell.part, cell.what, number(middle), number(low), number(high)))
    print(table(HEADINGS, rows))
    print_targets(targets)
    return figures.experiments("telemetry_store", Cell._asdict, targets)


def compare_holders(ticks: Sequence[bytes]) -> list[Statement]:
    """The size of a tick and of a month's rows, as far as lines and stacks are in them."""
    empty = len(only(ticks[0], ()))
    added = statistics.median(len(only(tick, LINES + STACKS)) - empty for tick in ticks)
    without = month_bytes(records_of(ticks, ()))
    shares = []
    for holders in (ticks, crowded_ticks(len(ticks))):
        for fields in (LINES, LINES + STACKS):
            records = records_of(ticks, [only(tick, fields) for tick in holders])
            shares.append(month_bytes(records) / without)
    print(
        f"rows of a month: {without / 1e6:,.0f} MB without lines and stacks, "
        f"{shares[0]:.2f} of that with lines, {shares[1]:.2f} with both"
    )
    print(f"if every tick is full: {shares[2]:.2f} of that with lines, {shares[3]:.2f} with both")
    return [
        target("lines and stacks of a tick", added, MAX_HOLDERS_BYTES, at_most=True, unit="bytes"),
        target("rows with holders, of those without", shares[1], MAX_HOLDERS_RATIO, at_most=True),
    ]


def month_bytes(records: Sequence[bytes]) -> float:
    """The bytes of all rows of a month, without a limit."""
    pools = make_pools(records, random.Random(30))
    return sum(
        mean_bytes(pools[kept.table])
        * (MONTH_GROUPS if "group" in kept.table else MONTH_PROCESSES)
        * min(kept.age_s, MONTH_S)
        / kept.width_s
        for kept in KEPT
    )


def ingest(ticks: Sequence[bytes], seconds: float, processes: int) -> float:
    """The recorder's CPU time as a share of a core."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/in.sock"
        command = [
            *(sys.executable, "-m", "headway", "telemetry", "--listen", f"unix:{path}"),
            *("--store", f"{folder}/store.sqlite", "--no-http"),
        ]
        with started(command, "headway telemetry", speaks=False) as recorder:
            wait_until_listening(path, recorder)
            pid = recorder.process.pid
            # The first minute has nothing to roll up yet.
            send(path, ticks, range(1, 61), processes)
            before_s, began = process_tree.cpu_s(pid), time.monotonic()
            send(path, ticks, range(61, 61 + round(seconds)), processes)
            used_s, lasted_s = process_tree.cpu_s(pid) - before_s, time.monotonic() - began
            # The recorder commits everything before it ends.
            recorder.process.terminate()
            recorder.process.wait(TIMEOUT_S)
        check_all_there(f"{folder}/store.sqlite", (60 + round(seconds)) * processes)
    return used_s / lasted_s


def wait_until_listening(path: str, recorder: ChildProgram) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not os.path.exists(path):
        if time.monotonic() > end or recorder.process.poll() is not None:
            raise ProgramError(f"no recorder: {recorder.last_message()}")
        time.sleep(0.05)


def send(path: str, ticks: Sequence[bytes], sequences: range, processes: int) -> None:
    """Sends a tick of every process each second, from as few senders as the recorder allows."""
    fork = multiprocessing.get_context("fork")
    count = math.ceil(processes / TICKS_OF_SENDER)
    senders = [
        fork.Process(
            target=send_some,
            args=(path, ticks, sequences, range(first, processes, count), processes),
        )
        for first in range(count)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()


def send_some(
    path: str, ticks: Sequence[bytes], sequences: range, places: range, processes: int
) -> None:
    """Sends the ticks of some of the processes, each at its own time within the second."""
    began = time.monotonic()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(path)
        for second, sequence in enumerate(sequences):
            for place in places:
                due = began + second + place / processes
                if (pause := due - time.monotonic()) > 0:
                    time.sleep(pause)
                datagram = ticks[(place + sequence) % len(ticks)]
                sender.send(as_another(datagram, FIRST_PID + place, sequence, time.time()))


def check_all_there(path: str, sent: int) -> None:
    history = History(reader=Reader(path))
    record = history.record(time.time() - DAY_S, time.time() + DAY_S, EVERYTHING)
    history.close()
    found = _native.telemetry_read(record)["ticks"] if record else 0
    if found != sent:
        raise ProgramError(f"{sent} ticks were sent, {found} are in the store")


def measure_days(
    path: Path,
    days: int,
    records: Sequence[bytes],
    options: argparse.Namespace,
    figures: Figures[Cell],
) -> list[Statement]:
    now, span_s = time.time() // 3600 * 3600, days * DAY_S
    progress(f"telemetry_store: rows of {days} days")
    make_store(str(path), records, now, span_s)
    clear_progress()
    size = sum(os.stat(each).st_size for each in path.parent.iterdir())
    of_processes = f"{MONTH_PROCESSES} processes"
    figures.record(Cell("month", f"{of_processes}, {days} days, MB on disk"), value=size / 1e6)
    targets = [
        target(f"{days} days of 50 processes", size / 1e6, MAX_STORE_MB, at_most=True, unit="MB")
    ]
    print_levels(str(path), now, span_s)
    if ROLLUPS in options.part:
        print_rollups(str(path), now, options.rounds)
    if "week" not in options.part:
        return targets
    history = History(reader=Reader(str(path)), clock=lambda: now)
    step, one = WEEK_S / POINTS, Selection(pids=frozenset({1}))
    points = f"{POINTS} points, of {days} days, s"
    week = Cell("week", f"{of_processes}, {points}")
    asked: dict[Cell, Callable[[], object]] = {
        week: lambda: history.records(now - WEEK_S, now, step, EVERYTHING),
        Cell("week", f"one process, {points}"): lambda: history.records(
            now - WEEK_S, now, step, one
        ),
        Cell("week", f"the sum of each process, of {days} days, s"): lambda: history.per_process(
            now - WEEK_S, now, EVERYTHING
        ),
        Cell("week", f"all days, {points}"): lambda: history.records(
            now - span_s, now, span_s / POINTS, EVERYTHING
        ),
    }
    for cell, seconds in sitting.rounds(
        "telemetry_store", options.rounds, list(asked), lambda cell: lasted(asked[cell])
    ):
        figures.record(cell, value=seconds)
    history.close()
    week_s = figures.median(week, "value")
    targets.append(
        target(
            f"a week of 50 processes, of {days} days", week_s, MAX_WEEK_S, at_most=True, unit="s"
        )
    )
    return targets


def print_rollups(path: str, now: float, rounds: int) -> None:
    """The seconds of charts of all processes and of one, without each table in turn."""
    usual = reading.levels_of

    def without(*left_out: Level) -> Callable[[bool], tuple[Level, ...]]:
        def levels_of(groups: bool) -> tuple[Level, ...]:
            found = tuple(level for level in usual(groups) if level not in left_out)
            return found if len(found) > 1 else PROCESS_LEVELS

        return levels_of

    cases = {"": usual, "process_group_*": without(*GROUP_LEVELS)}
    cases |= {level.table: without(level) for level in LEVELS}
    selections = {"all": EVERYTHING, "one": Selection(pids=frozenset({1}))}
    history = History(reader=Reader(path), clock=lambda: now)
    rows = []
    for name, levels_of in cases.items():
        reading.levels_of = levels_of  # type: ignore[assignment]
        row = []
        for selection in selections.values():
            for range_s in RANGES_S.values():
                ask = partial(history.records, now - range_s, now, range_s / POINTS, selection)
                row.append(number(statistics.median(lasted(ask) for _ in range(rounds)) * 1e3))
        rows.append((f"without {name}" if name else "with all", *row))
    reading.levels_of = usual
    history.close()
    headings = [f"{which}, {span}, ms" for which in selections for span in RANGES_S]
    print(table(("charts", *headings), rows, names=1))


def lasted(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def make_store(path: str, ticks: Sequence[bytes], now: float, span_s: float) -> None:
    """Writes the rows that the recorder would have so many seconds after its start."""
    choose = random.Random(30)
    pools = make_pools(ticks, choose)
    with closing(schema.connect(path)) as database:
        transact(database, lambda: make_processes(database, now - span_s, now))
        for kept in KEPT:
            owners = MONTH_GROUPS if "group" in kept.table else MONTH_PROCESSES
            pool = pools[kept.table]
            # Not many more rows than the bound leaves.
            packed_bytes = mean_bytes(pool) * owners / kept.width_s
            room_s = 1.5 * kept.share * DEFAULT_LIMIT_BYTES / packed_bytes
            first = (now - min(kept.age_s, span_s, room_s)) // kept.width_s
            rows = (
                (row_id(start * kept.width_s, kept.width_s, owner), choose.choice(pool))
                for start in range(int(first), int(now // kept.width_s))
                for owner in range(1, owners + 1)
            )
            total = 0

            def counted(rows: Iterator[tuple[int, bytes]] = rows) -> Iterator[tuple[int, bytes]]:
                nonlocal total
                for row in rows:
                    total += len(row[1])
                    yield row

            database.execute("BEGIN")
            database.executemany(f"INSERT INTO {kept.table} VALUES (?, ?)", counted())
            set_mark(database, f"bytes:{kept.table}", total)
            if first > (now - span_s) // kept.width_s:
                set_mark(database, f"kept:{kept.table}", first * kept.width_s)
            database.execute("COMMIT")
        for level in LEVELS:
            set_mark(database, f"done:{level.table}", now)
        transact(database, lambda: forget_old(database, now))
        while transact(database, lambda: forget_most(database, DEFAULT_LIMIT_BYTES, now)):
            pass
        database.execute("PRAGMA incremental_vacuum").fetchall()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def make_processes(database: sqlite3.Connection, began: float, now: float) -> None:
    database.execute("INSERT INTO identity VALUES (1, '{}')")
    for group in range(1, MONTH_GROUPS + 1):
        database.execute("INSERT INTO process_group VALUES (?, 'alpha', ?)", (group, str(group)))
    for pid in range(1, MONTH_PROCESSES + 1):
        group = pid % MONTH_GROUPS + 1
        database.execute(
            "INSERT INTO process VALUES (?, 'alpha', ?, 0, ?, 'serve', 1, ?, ?, 1, 0)",
            (pid, pid, group, began, now),
        )


def make_pools(ticks: Sequence[bytes], choose: random.Random) -> dict[str, list[bytes]]:
    """Packed rows of each table."""

    def sums(of: Sequence[bytes], count: int) -> list[bytes]:
        return [merge(choose.choices(of, k=count)) for _ in range(POOL)]

    tens = sums(ticks, 10)
    minutes = sums(tens, 6)
    fives = sums(minutes, 5)
    pools = dict(zip((10, 60, 300, 3600), (tens, minutes, fives, sums(fives, 12)), strict=True))
    of_group = MONTH_PROCESSES // MONTH_GROUPS
    packed = {
        level.table: [
            pack_record(each)
            for each in (
                sums(pools[level.width_s], of_group)
                if is_of_groups(level)
                else pools[level.width_s]
            )
        ]
        for level in LEVELS
    }
    packed["minute"] = [
        pack_ticks((float(n), each) for n, each in enumerate(choose.choices(ticks, k=60)))
        for _ in range(POOL)
    ]
    return packed


def is_of_groups(level: Level) -> bool:
    return level in GROUP_LEVELS


def print_levels(path: str, now: float, span_s: float) -> None:
    rows = []
    with closing(schema.connect_read_only(path)) as database:
        marks = dict(database.execute("SELECT name, value FROM progress"))
        for kept in KEPT:
            count, first = database.execute(
                f"SELECT count(*), min(id) FROM {kept.table}"
            ).fetchone()
            size = marks.get(f"bytes:{kept.table}", 0)
            reaches = (now - (first >> schema.OWNER_BITS) * kept.width_s) / 3600 if first else 0
            rows.append(
                (
                    kept.table,
                    number(count),
                    number(size / 1e6),
                    number(size / max(count, 1)),
                    f"{reaches:,.1f}",
                    f"{min(kept.age_s, span_s) / 3600:,.1f}",
                )
            )
    print(table(("table", "rows", "MB", "bytes/row", "reaches h", "of h"), rows, names=1))


def main() -> int:
    parser = sitting.Parser("telemetry_store", __doc__)
    sitting.prepare_parser(parser, rounds=3, seconds=120, quick_seconds=60, policies=())
    parser.add_argument(
        "--part",
        nargs="+",
        choices=(*PARTS, ROLLUPS),
        default=PARTS,
        help="which of these (default: all but rollups)",
    )
    for option, counts, text in (
        ("--processes", PROCESSES, "of the part ingest, how many processes report"),
        ("--days", DAYS, "of the parts month and week, the days in the store"),
    ):
        sitting.add_counts(parser, option, counts, text, sitting.at_least_one)
    parser.add_argument("--folder", metavar="DIR", help="where the store of days is made")
    return sitting.hold("telemetry_store", parser, measure)


if __name__ == "__main__":
    sys.exit(main())
