"""Many threads in few rows: by pattern of names, with their number, and who matters apart."""

from __future__ import annotations

import random
from typing import Any

import pytest
from launch import GIL_ENABLED, headway, read_json
from made_reports import convoy, decoded, report, thread

from headway.report import sentence, terminal, thread_groups
from headway.report.model import ThreadRow

pytestmark = pytest.mark.free_threading

LIMIT = 20


def waited_s(row: ThreadRow) -> float:
    return row.waited_s


def held_s(row: ThreadRow) -> float:
    return row.held_s


def grouped(rows: list[dict[str, Any]]) -> dict[str, int]:
    found = thread_groups.group([ThreadRow.decode(row) for row in rows], (waited_s, held_s), LIMIT)
    return {row.name: thread_groups.threads_of(row) for row in found}


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("Thread-12 (serve)", "Thread-* (serve)"),
        ("Thread-12 (serve2)", "Thread-* (serve2)"),
        ("Thread-7", "Thread-*"),
        ("ThreadPoolExecutor-0_3", "ThreadPoolExecutor-*_*"),
        ("asyncio_0", "asyncio_*"),
        ("Dummy-4", "Dummy-*"),
        ("MainThread", "MainThread"),
        ("2024", "*"),
        ("", ""),
    ],
)
def test_a_pattern_is_the_name_without_its_numbers(name: str, pattern: str) -> None:
    assert thread_groups.pattern(name) == pattern


def test_few_threads_keep_their_rows() -> None:
    rows = [thread(f"worker-{n}", [0.001]) for n in range(LIMIT)]
    assert list(grouped(rows).values()) == [1] * LIMIT


def test_who_waited_and_held_most_and_the_main_thread_keep_their_rows() -> None:
    rows = [thread(f"worker-{n}", [0.001 * n], [0.1 / (n + 1)]) for n in range(30)]
    rows += [thread("asyncio_0", [0.01]) for _ in range(10)]
    rows += [thread("MainThread", [], [1e-6]), thread("Thread-1 (f)"), thread("Thread-2 (f)")]
    assert grouped(rows) == {
        "worker-29": 1,
        "worker-0": 1,
        "worker-*": 28,
        # All of one name.
        "asyncio_0": 10,
        "Thread-* (f)": 2,
        "MainThread": 1,
    }


def test_what_the_meter_has_added_up_joins_the_others() -> None:
    """It takes the number off the names of ended threads, and adds up those of one stem."""
    rows = [
        {**thread("Thread- (f)", [0.5]), "folded": 9_744},
        {**thread("worker-", [0.1]), "folded": 300},
        {**thread("t", [0.1]), "folded": 7},
        {**thread("setup", [0.1]), "folded": 1},
        {**thread("setups", [0.1]), "folded": 2},
        {**thread("(ended)", [0.1]), "folded": 3},
        thread("Thread-12 (f)", [0.001]),
        thread("Thread-99 (f)", [0.001]),
        thread("t5", [0.001]),
        thread("t6", [0.001]),
        thread("MainThread", [0.002], [5.0]),
        thread("worker-3", [0.9]),
    ]
    assert grouped(rows) == {
        "worker-3": 1,
        "Thread-* (f)": 9_746,
        "t*": 9,
        "worker-*": 300,
        "setup": 1,
        "setups": 2,
        "(ended)": 3,
        "MainThread": 1,
    }


def test_a_group_has_the_figures_of_all_its_threads() -> None:
    chance = random.Random(3)
    waits = [[chance.expovariate(1000) for _ in range(20)] for _ in range(40)]
    rows = [thread(f"t-{n}", each, [0.01, 0.02], forced_drops=1) for n, each in enumerate(waits)]
    for row in rows[::2]:
        row["longest_unanswered_s"] = 0.01
    # As if none stood out.
    (row,) = thread_groups.group([ThreadRow.decode(each) for each in rows], (), LIMIT)
    every = sorted(wait for each in waits for wait in each)
    assert row.folded == 40
    assert row.waited_s == pytest.approx(sum(every))
    assert row.held_s == pytest.approx(40 * 0.03)
    assert (row.takes, row.forced_drops, row.longest_unanswered_s) == (80, 40, 0.01)
    wait = row.wait
    assert (wait.count, wait.min_s, wait.max_s) == (
        800,
        pytest.approx(every[0], abs=1e-9),
        pytest.approx(every[-1], abs=1e-9),
    )
    assert wait.p99_s == pytest.approx(every[791], rel=0.0625)
    assert sum(number for _, number in wait.buckets) == 800


def test_groups_are_those_of_one_gil() -> None:
    rows = [thread(f"t-{n}", [0.001], gil=n % 2) for n in range(40)]
    found = thread_groups.group([ThreadRow.decode(row) for row in rows], (), LIMIT)
    assert sorted((row.gil, row.folded) for row in found) == [(0, 20), (1, 20)]


def lines_of(made: dict[str, Any], width: int = 80) -> list[str]:
    return terminal.draw(decoded(made), terminal.Style(width)).splitlines()


def test_a_table_of_groups_has_the_number_of_threads() -> None:
    threads = [thread("asyncio_0", [0.02]) for _ in range(300)]
    threads.append(thread("MainThread", [0.001], [5.0]))
    lines = lines_of(report(threads, 10.0))
    head = next(line for line in lines if line.startswith("thread "))
    assert head.split()[:3] == ["thread", "threads", "waited"]
    rows = [line.split()[:2] for line in lines if line.startswith(("asyncio_0", "MainThread"))]
    assert rows == [["asyncio_0", "299"], ["asyncio_0", "1"], ["MainThread", "1"]]
    assert not any(line.startswith("and ") for line in lines)
    # Where none is grouped there is no such column.
    assert not any(line.startswith("thread  threads") for line in lines_of(convoy()))


def test_the_thread_that_held_most_is_shown_however_many_waited_more() -> None:
    names = [f"{chr(97 + n // 10)}{chr(97 + n % 10)}" for n in range(40)]
    threads = [thread(name, [0.1 + n / 1000]) for n, name in enumerate(names)]
    threads += [thread("holder", [], [9.0]), thread("MainThread", [], [1e-6])]
    lines = lines_of(report(threads, 10.0))
    assert sum(line.startswith(("holder  ", "MainThread  ")) for line in lines) == 2
    assert "and 22 more threads: waited 2.43 s, held 22 ms" in lines


def test_a_sum_of_ended_threads_is_told_as_such() -> None:
    made = report([{**thread("Thread- (f)", [0.1] * 8), "folded": 9_744}, thread("a")], 1.0)
    assert "9,744 ended threads (Thread- (f)) waited 800 ms of 1 s" in sentence.sentence(
        decoded(made)
    )


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
def test_many_short_threads_are_one_row_with_their_number(tmp_path: Any) -> None:
    code = """if True:
        import threading
        def work(): sum(range(100))
        for _ in range(9):
            threads = [threading.Thread(target=work) for _ in range(100)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        sum(range(3_000_000))
    """
    out = tmp_path / "out.json"
    result = headway("run", "--json", out, "-c", code)
    lines = [line.split() for line in result.stderr.splitlines()]
    # Not the line about a thread that kept the GIL.
    rows = [words for words in lines if words[1:2] == ["(work)"] and words[2].isdigit()]
    # One may have waited or held most of all, and then it has a row of its own.
    assert ["Thread-*", "(work)"] in [words[:2] for words in rows]
    assert sum(int(words[2]) for words in rows) == 900
    assert len(rows) <= 3
    assert any(words[:2] == ["MainThread", "1"] for words in lines)
    # The JSON has what the meter kept apart.
    assert len(read_json(out)["threads"]) > 100
