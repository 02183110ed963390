"""The store through what befalls stores: kills, full disks, locks, damage, other versions."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ticks import SLOW, START, Bench, Clock, message, requests, tick

from headway.errors import CommandError
from headway.recorder.store import schema, store
from headway.recorder.store.retention import used_bytes
from headway.recorder.store.selection import EVERYTHING, Selection

HERE = Path(__file__).resolve().parent
# The texts in an identity.
TEXTS = (
    *("mod_wsgi_version", "python_version", "apache_version", "mpm_name", "headway_version"),
    *("gil_mode", "policy", "process_name"),
)


def test_a_restart_goes_on(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.sqlite", Clock()
    for _ in range(3):
        bench = Bench(path, clock)
        bench.run(100)
        bench.stop()
    bench = Bench(path, clock)
    assert bench.requests(START, clock.now + 1) == 3000
    (process,) = bench.history.processes(at=clock.now + 1)
    assert (process.pid, process.host, process.group) == (100, "alpha", "shop")
    bench.stop()


def test_a_process_stays_the_same_over_a_restart(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.sqlite", Clock()
    for _ in range(2):
        bench = Bench(path, clock)
        bench.run(90)
        bench.stop()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM process").fetchone() == (1,)


KILLED = """
    import sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from ticks import Bench
    bench = Bench(Path(sys.argv[1]))
    while True:
        bench.run(1, (100, 101))
        print(bench.clock.now, flush=True)
"""


@pytest.mark.parametrize("seconds", [3, 64, 130, 301])
def test_a_kill_loses_nothing_that_was_committed(tmp_path: Path, seconds: int) -> None:
    """Wherever it comes: amid ticks, minutes that are rolled up, or groups."""
    path = tmp_path / "store.sqlite"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), path, HERE],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        for _ in range(seconds):
            committed = float(child.stdout.readline())
    finally:
        child.send_signal(signal.SIGKILL)
        with child:
            rest = child.stdout.read().split("\n") if child.stdout else []
    committed = float(rest[-2]) if len(rest) > 1 else committed
    clock = Clock()
    clock.now = committed + 1
    bench = Bench(path, clock)
    told = int(committed - START) * 20
    expected = bench.requests(START, committed + 2)
    # It may have come between a commit and the line about it.
    assert expected in (told, told + 20)
    bench.run(400)
    assert bench.requests(START, clock.now + 1) == expected + 4000
    for step in (10, 60, 300):
        points = bench.history.records(START, clock.now + 1, step, EVERYTHING)
        assert sum(requests(record) for _, record, _ in points) == expected + 4000
    bench.stop()


@contextmanager
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    with full_disk(tmp_path) as place:
        bench = Bench(place / "store.sqlite")
        bench.run(5)
        (place / "ballast").write_bytes(bytes(shutil.disk_usage(place).free))
        bench.run(50)
        assert bench.store is not None
        assert "full" in bench.store.error
        assert bench.store.health()["error"] == bench.store.error
        assert len(bench.lines) == 1
        assert bench.store.health()["waiting"] > 0
        # The live view goes on.
        assert bench.requests(START, bench.clock.now + 1) == 550
        (place / "ballast").unlink()
        bench.run(5)
        assert bench.store.error == ""
        assert bench.store.health()["waiting"] == 0
        assert len(bench.lines) == 2
        assert bench.requests(START, bench.clock.now + 1) == 600
        # And it is on the disk.
        bench.stop()
        bench = Bench(place / "store.sqlite", bench.clock)
        assert bench.requests(START, bench.clock.now + 1) == 600
        bench.stop()


def test_what_finds_no_room_meanwhile_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_WAITING_BYTES", 10_000)
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.0)
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.run(5)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert bench.store is not None
        for _ in range(60):
            bench.clock.now += 1
            bench.sequence += 1
            bench.give(tick(100, bench.sequence, bench.clock.now))
        assert not bench.store.write()
        assert "locked" in bench.store.error
        lost = bench.store.not_stored
        assert 0 < lost < 60
        # Memory still has them.
        assert bench.requests(START, bench.clock.now + 1) == 650
    assert bench.store.write()
    assert bench.store.not_stored == lost
    clock = bench.clock
    bench.stop()
    bench = Bench(path, clock)
    assert bench.requests(START, clock.now + 1) == 650 - 10 * lost
    bench.stop()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"dear diary\n" * 1000)
    bench = Bench(path)
    bench.run(5)
    assert bench.store is not None
    assert "not a database" in bench.store.error
    assert bench.requests(START, bench.clock.now + 1) == 50
    assert path.read_bytes().startswith(b"dear diary")
    # Somebody takes it away, and writing goes on by itself.
    path.rename(tmp_path / "diary")
    bench.run(5)
    assert bench.store.error == ""
    assert bench.requests(START, bench.clock.now + 1) == 100
    bench.stop()


def test_a_damaged_store(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.run(400)
    bench.stop()
    content = bytearray(path.read_bytes())
    # All but the first page, which has the schema.
    content[schema.PAGE_BYTES :] = b"\xff" * (len(content) - schema.PAGE_BYTES)
    path.write_bytes(content)
    bench = Bench(path, bench.clock)
    start = bench.clock.now
    bench.run(5)
    assert bench.store is not None
    assert bench.store.error
    assert bench.requests(start, bench.clock.now + 1) == 50
    assert bench.history.records(START, bench.clock.now + 1, 10, EVERYTHING)
    path.unlink()
    bench.run(5)
    assert bench.store.error == ""
    bench.stop()


def test_a_damaged_row_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.run(130)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        (key,) = database.execute("SELECT min(id) FROM minute").fetchone()
        database.execute("UPDATE minute SET ticks = x'789c00ff' WHERE id = ?", (key,))
    found = bench.history.records(START, START + 100, 1, EVERYTHING)
    assert 0 < sum(requests(record) for _, record, _ in found) < 1000
    assert bench.requests(START, START + 120) == 1190
    bench.stop()


def test_a_store_that_is_taken_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.run(5)
    for name in ("store.sqlite", "store.sqlite-wal", "store.sqlite-shm"):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
    bench.run(5)
    clock = bench.clock
    bench.stop()
    bench = Bench(path, clock)
    assert bench.requests(START + 6, clock.now + 1) == 50
    bench.stop()


def test_a_log_that_is_taken_away_costs_nothing(tmp_path: Path) -> None:
    """The log of the last writes is a file of its own, which a clean-up may remove alone."""
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.run(5)
    # SQLite brings the log into the database at the end only if nobody else is connected.
    with closing(schema.connect_read_only(str(path))):
        (tmp_path / "store.sqlite-wal").unlink()
        bench.run(5)
        assert bench.store is not None
        assert bench.store.error == ""
        clock = bench.clock
        bench.stop()
    bench = Bench(path, clock)
    assert bench.requests(START, clock.now + 1) == 100
    bench.stop()


def test_after_a_clock_that_was_ahead_seconds_are_kept_again(tmp_path: Path) -> None:
    path, clock, ahead_s = tmp_path / "store.sqlite", Clock(), 500 * 86_400
    bench = Bench(path, clock)
    bench.run(130)
    clock.now += ahead_s
    bench.run(130)
    clock.now -= ahead_s
    bench.run(1)
    start = clock.now
    bench.run(130)
    bench.stop()
    # Another recorder has nothing of it in memory.
    bench = Bench(path, clock)
    found = bench.history.records(start, start + 100, 1, EVERYTHING)
    assert [requests(record) for _, record, _ in found] == [10] * 100
    bench.stop()


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """Something that is no folder stands for it, since root may write anywhere."""
    place = tmp_path / "place"
    place.write_text("")
    bench = Bench(place / "store.sqlite")
    bench.run(5)
    assert bench.store is not None
    assert bench.store.error
    assert bench.requests(START, bench.clock.now + 1) == 50
    place.unlink()
    place.mkdir()
    bench.run(5)
    assert bench.store.error == ""
    bench.stop()


def test_two_recorders_do_not_share_a_store(tmp_path: Path) -> None:
    first = Bench(tmp_path / "store.sqlite")
    first.run(5)
    second = Bench(tmp_path / "store.sqlite", first.clock)
    second.run(5)
    assert second.store is not None
    assert "another recorder" in second.store.error
    first.stop()
    second.run(1)
    assert second.store.error == ""
    second.stop()


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Bench(path).stop()
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {schema.SCHEMA + 1}")
    with pytest.raises(CommandError, match=r"has schema 2, and .* up to 1") as caught:
        Bench(path)
    assert caught.value.exit_code == 2


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE diary (page)")
    with pytest.raises(CommandError, match="another program"):
        Bench(path)


def test_the_size_is_bounded(tmp_path: Path) -> None:
    path, limit = tmp_path / "store.sqlite", 2_000_000
    bench = Bench(path, limit_bytes=limit)
    noise = [(0.001 * n, n) for n in range(1, 200)]
    bench.run(1500, (1, 2, 3, 4, 5), request_time_histogram=noise)
    bench.settle()
    with closing(sqlite3.connect(path)) as database:
        assert used_bytes(database) <= limit * 1.05
        minutes = database.execute("SELECT count(*) FROM minute").fetchone()[0]
        assert minutes < 5 * 25
    # Only details were removed: every request is still in the sums.
    assert bench.requests(START, bench.clock.now + 1) == 75_000
    bench.stop()


def big_identities(bench: Bench, pids: range) -> None:
    """A process each second that says 8 times 255 bytes about itself, each character escaped."""
    for pid in pids:
        bench.run(1, (pid,), **{name: f"{pid}".ljust(255, "\x01") for name in TEXTS})


def test_identities_do_not_exceed_the_size(tmp_path: Path) -> None:
    """Of processes that were seen long ago, they are dropped, and nothing else is."""
    path, limit = tmp_path / "store.sqlite", 6 * 2**20
    bench = Bench(path, limit_bytes=limit)
    bench.run(60)
    big_identities(bench, range(1000, 1400))
    bench.run(60)
    bench.settle()
    with closing(sqlite3.connect(path)) as database:
        assert used_bytes(database) <= limit
        (identities,) = database.execute("SELECT count(*) FROM identity").fetchone()
        (processes,) = database.execute("SELECT count(*) FROM process").fetchone()
        assert identities <= processes < 200
    # The last ones are there, and so is the one that reports on.
    found = {each.pid for each in bench.history.processes(at=bench.clock.now + 1)}
    assert 100 in found
    assert bench.requests(START, START + 60) == 590
    assert bench.store is not None
    assert bench.store.error == ""
    clock = bench.clock
    bench.stop()
    margin = (store.SPARE_PAGES + 1) * schema.PAGE_BYTES
    assert path.stat().st_size <= limit + margin
    bench = Bench(path, clock)
    assert 100 in {each.pid for each in bench.history.processes(at=clock.now + 1)}
    bench.stop()


def test_even_identities_of_processes_that_report_do_not_exceed_the_size(tmp_path: Path) -> None:
    path, limit = tmp_path / "store.sqlite", store.MIN_LIMIT_BYTES
    bench = Bench(path, limit_bytes=limit)
    for pid in range(1000, 1400):
        bench.give(tick(pid, 1, START, **{name: f"{pid}".ljust(255, "\x01") for name in TEXTS}))
    bench.settle()
    with closing(sqlite3.connect(path)) as database:
        assert used_bytes(database) <= limit
    # A process whose row was dropped gets another one.
    bench.run(1, (1000,))
    assert bench.requests(bench.clock.now, bench.clock.now + 1) == 10
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT count(*) FROM process WHERE pid = 1000").fetchone()
        assert found == (1,)
    bench.stop()


def test_a_process_that_changes_its_identity_leaves_none_behind(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    for n in range(20):
        bench.clock.now += 60
        bench.run(1, (100,), policy=f"policy {n}")
    bench.clock.now += 61
    bench.run(1, (100,))
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM identity").fetchone() == (1,)
    bench.stop()


def test_ids_of_dropped_processes_are_not_given_again(tmp_path: Path) -> None:
    """Rows of the old process would be the new one's."""
    path, year_s = tmp_path / "store.sqlite", 401 * 86_400
    bench = Bench(path)
    bench.run(130, (100,))
    with closing(sqlite3.connect(path)) as database:
        ids = set(database.execute("SELECT id FROM process"))
    bench.clock.now += year_s
    bench.store_now()
    bench.run(1, (101,))
    with closing(sqlite3.connect(path)) as database:
        (later,) = database.execute("SELECT id FROM process WHERE pid = 101")
        assert later not in ids
    bench.stop()


@pytest.mark.parametrize("table", ["event", "tick"])
def test_a_flood_costs_its_own_table_alone(tmp_path: Path, table: str) -> None:
    path, limit = tmp_path / "store.sqlite", 4 * 2**20
    bench = Bench(path, limit_bytes=limit)
    bench.run(120)
    bench.clock.now += 66
    bench.store_now()
    for n in range(1, 201):
        noise = os.urandom(25_000).hex()
        if table == "event":
            for pid in (200, 201, 202):
                slow = message(SLOW, pid, n, bench.clock.now, slow_stack=noise, slow_log_id=f"{n}")
                bench.give(slow)
        else:
            rows = [{"endpoint_name": noise[at : at + 900]} for at in range(0, 50_000, 900)]
            bench.give(tick(200, n, bench.clock.now, endpoints=rows, request_count=0))
        bench.store_now()
    bench.settle()
    with closing(sqlite3.connect(path)) as database:
        assert used_bytes(database) <= limit
    assert bench.requests(START, START + 120) == 1190
    bench.stop()


def test_an_unforeseen_error_does_not_end_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path / "store.sqlite")

    def fail(*_: object) -> None:
        raise OverflowError("a defect")

    assert bench.store is not None
    monkeypatch.setattr(bench.store, "_insert", fail)
    bench.run(2)
    assert bench.store.error == "a defect"
    monkeypatch.undo()
    bench.run(2)
    assert bench.store.error == ""
    assert bench.requests(START, bench.clock.now + 1) == 40
    bench.stop()


def test_the_file_shrinks_with_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    noise = [(0.001 * n, n) for n in range(1, 200)]
    bench.run(1200, tuple(range(1, 9)), request_time_histogram=noise)
    clock = bench.clock
    bench.stop()
    before = path.stat().st_size
    bench = Bench(path, clock, limit_bytes=before // 4)
    bench.settle()
    bench.stop()
    assert path.stat().st_size < before / 2 + store.SPARE_PAGES * schema.PAGE_BYTES


def test_events_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.recorder.store import retention

    monkeypatch.setitem(retention.EVENTS, "hold", (3600, 20))
    bench = Bench(tmp_path / "store.sqlite")
    for n in range(100):
        hold = {"hold_stamp": bench.clock.now + 0.5, "hold_duration": 0.2, "hold_native_id": n}
        bench.run(1, (100,), holds=[hold])
    bench.clock.now += 61
    bench.run(1)
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM event").fetchone() == (20,)
    bench.stop()


def test_a_slow_reader_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.run(30)
    with closing(schema.connect_read_only(str(path))) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM tick").fetchone() == (30,)
        bench.run(100)
        assert bench.store is not None
        assert bench.store.error == ""
        assert reader.execute("SELECT count(*) FROM tick").fetchone() == (30,)
        reader.execute("COMMIT")
    bench.stop()


def test_the_threads_commit_what_came_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    clock = Clock()
    bench = Bench(path, clock)
    bench.recorder.start()
    for n in range(100):
        bench.give(tick(100, n + 1, START + n / 100))
    bench.stop()
    again = Bench(path, clock)
    assert again.requests(START, START + 1) == 1000
    again.stop()


def test_commits_come_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "COMMIT_INTERVAL_S", 0.1)
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.recorder.start()
    bench.give(tick(100, 1, START))
    end = time.monotonic() + 30
    with closing(sqlite3.connect(path)) as database:
        while database.execute("SELECT count(*) FROM tick").fetchone() != (1,):
            assert time.monotonic() < end
            time.sleep(0.05)
    bench.stop()


def test_a_damaged_record_is_left_out_of_sums(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    bench.run(10)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        (number,) = database.execute("SELECT min(number) FROM tick").fetchone()
        database.execute("UPDATE tick SET record = x'01ffffff' WHERE number = ?", (number,))
    bench.run(400)
    assert bench.store is not None
    assert bench.store.error == ""
    assert bench.requests(START, bench.clock.now + 1) == 4090
    bench.stop()


def test_processes_without_a_start_that_share_a_pid(tmp_path: Path) -> None:
    """As mod_wsgi's: a counter that begins anew is another, also over a restart."""
    path, clock = tmp_path / "store.sqlite", Clock()
    bench = Bench(path, clock)
    bench.run(40, process_started_stamp=None)
    bench.sequence = 0
    bench.run(40, process_started_stamp=None)
    sequence = bench.sequence
    bench.stop()
    bench = Bench(path, clock)
    bench.sequence = sequence
    bench.run(40, process_started_stamp=None)
    bench.store_now()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM process").fetchone() == (2,)
    assert bench.requests(START, clock.now + 1) == 1200
    bench.stop()


def test_processes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.recorder.store import retention

    monkeypatch.setattr(retention, "MAX_PROCESSES", 10)
    path = tmp_path / "store.sqlite"
    bench = Bench(path)
    for pid in range(100):
        bench.run(1, (pid,), process_group=f"group {pid}")
    bench.clock.now += 61
    bench.run(1, (99,), process_group="group 99")
    with closing(sqlite3.connect(path)) as database:
        for table in ("process", "process_group"):
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert count <= 11
    # And goes on with a group that was forgotten.
    bench.run(90, (5,), process_group="group 5")
    selection = Selection(groups=frozenset({"group 5"}))
    assert bench.requests(bench.clock.now - 89, bench.clock.now + 1, selection) == 900
    assert bench.store is not None
    assert bench.store.error == ""
    bench.stop()
