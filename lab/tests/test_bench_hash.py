"""`headway bench hash`: its rows, what it makes of results, and its program at work."""

from __future__ import annotations

import sys

import pytest
from launch import execute, run_main
from made_results import measured, statement

from headway.errors import CommandError
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.programs import interpreters
from headway.programs.processes import Window
from headway_lab.experiment import Choice
from headway_lab.measured.hash import (
    MAX_MESSAGE_BYTES,
    MIN_MESSAGE_BYTES,
    PUBLISHED_S,
    Hash,
    hash_messages,
)
from headway_lab.setting import PROGRAMS, Setting, program

HASH = Hash()
WITH_GIL = interpreters.this()._replace(free_threading=False, version="3.13.0")
FREE = WITH_GIL._replace(free_threading=True)
FULL = Choice(WITH_GIL, FREE, (STOCK, "priority"))
PLAIN = Setting(None, 0.005)


def published_s(parameters: Parameters) -> float:
    return PUBLISHED_S[parameters["threads"]]


def results(value: object = published_s, cpus: int = 2) -> Results:
    assert callable(value)
    return measured(HASH, FULL, value, cpus=cpus)


# Rows


def test_published_figures_stand_beside_stock_alone() -> None:
    beside = [
        (each.parameters["mode"], each.parameters["policy"], each.published) for each in results()
    ]
    assert beside[:4] == [("threads", STOCK, seconds) for seconds in PUBLISHED_S.values()]
    assert beside[4:8] == [("threads", "priority", None)] * 4
    assert beside[8:] == [("free-threaded", STOCK, None)] * 4


def test_rows_without_a_gil_are_left_out_where_there_is_no_such_interpreter() -> None:
    left_out = [row.parameters["mode"] for row in HASH.rows(Choice(WITH_GIL)) if row.left_out]
    assert left_out == ["free-threaded"] * 4


def test_quick_rows_are_few_and_among_all() -> None:
    choice = Choice(WITH_GIL, None, (STOCK, "priority", "deadline"), quick=True)
    quick = [row.parameters for row in HASH.rows(choice) if not row.left_out]
    everything = [row.parameters for row in HASH.rows(Choice(WITH_GIL, None, choice.policies))]
    assert all(row in everything for row in quick)
    assert 6 <= len(quick) <= 9


@pytest.mark.parametrize("threads", [0, 9])
def test_more_threads_than_messages_are_refused(threads: int) -> None:
    with pytest.raises(CommandError, match=f"--threads {threads}: hash .* from 1 to 8") as refused:
        HASH.rows(Choice(WITH_GIL, None, threads=(1, threads)))
    assert refused.value.exit_code == 2


# Tables, charts and statements


def test_all_statements_agree_with_what_was_published() -> None:
    statements = HASH.statements(results())
    assert [each.text for each in statements if not each.agrees] == []
    assert len(statements) == 5
    scaling = statement(HASH, results(), "stock: 2 threads on 2 cores are 2 times as fast")
    assert scaling.value == pytest.approx(3.30 / 1.68 / 2)


def test_hashing_that_does_not_scale_differs_and_says_why() -> None:
    scaling = statement(HASH, results(lambda _: 3.3), "stock: 2 threads on 2 cores are 2 times")
    assert not scaling.agrees
    assert "cores that others use" in scaling.why


def test_gains_beyond_the_cores_differ() -> None:
    gaining = results(lambda parameters: 3.3 / parameters["threads"])
    assert not statement(HASH, gaining, "stock: 8 threads on 2 cores take as long as").agrees
    # With as many cores as threads they are to be expected.
    enough = measured(HASH, FULL, lambda parameters: 3.3 / parameters["threads"], cpus=8)
    assert not [each for each in HASH.statements(enough) if not each.agrees]


def test_a_policy_that_costs_something_differs() -> None:
    def slower_s(parameters: Parameters) -> float:
        return published_s(parameters) * (1.3 if parameters["policy"] == "priority" else 1)

    cost = statement(HASH, results(slower_s), "priority costs nothing")
    assert not cost.agrees
    assert cost.value == pytest.approx(1.3)


def test_statements_without_their_rows_are_left_out() -> None:
    one = measured(HASH, Choice(WITH_GIL, None, threads=(1,)), published_s, cpus=2)
    assert HASH.statements(one) == []
    assert HASH.statements(Results("hash", "s", [], {})) == []


def test_tables_have_policies_down_and_charts_a_line_for_each() -> None:
    with_gil, free = HASH.tables(results())
    assert with_gil.headings == ["policy", "1 thread", "2 threads", "4 threads", "8 threads"]
    assert [line[0].text for line in with_gil.rows] == [STOCK, "priority"]
    assert free.title.startswith("free-threaded: ")
    (chart,) = HASH.charts(results())
    assert [line.name for line in chart.series] == [
        "stock, 5 ms",
        "priority, 5 ms",
        "free-threaded",
    ]
    assert list(chart.series[0].published) == list(PUBLISHED_S.items())


# The program


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_all_messages_are_hashed(threads: int) -> None:
    with program(PLAIN, "hash_threads", str(threads), "8", "65536", "0.005") as hashing:
        hashing.answer()
        hashing.measure(Window.after(0.0, 0))
        answer = hashing.answer()
    assert answer["hashed_bytes"] == 8 * 65536
    assert answer["seconds"] > 0


def test_threads_share_messages_out() -> None:
    script = (
        "import hashlib, hash_threads\n"
        "print([hash_threads.shares(8, count) for count in (1, 3, 8)])\n"
        "sha256 = hashlib.sha256\n"
        "hashlib.sha256 = lambda message: (print(message.decode()), sha256(message))[1]\n"
        "hash_threads.hash_messages(b'hashed', 2)\n"
    )
    told = execute([sys.executable, "-c", script], env={"PYTHONPATH": str(PROGRAMS)})
    assert told.stdout == f"{[[8], [3, 3, 2], [1] * 8]}\nhashed\nhashed\n", told.stderr


def test_a_value_is_scaled_to_the_published_messages() -> None:
    seconds = hash_messages(PLAIN, 1, MIN_MESSAGE_BYTES)
    # From 100 GB/s to 1 MB/s.
    assert 0.01 < seconds < 1_100


def test_a_message_is_as_large_as_the_time_allows_within_bounds() -> None:
    this = interpreters.this()
    short = HASH.calibrate(Choice(this, None, seconds=1e-9))
    assert short["message_bytes"] == MIN_MESSAGE_BYTES
    long = HASH.calibrate(Choice(this, None, seconds=300.0))
    assert long["message_bytes"] == MAX_MESSAGE_BYTES
    assert long["cpus"] >= 1


@pytest.mark.slow("runs an experiment")
def test_it_measures_under_a_policy_too() -> None:
    options = ("--values", "1", "--seconds", "0.02", "--threads", "2", "--policy", "stock")
    result = run_main("bench", "hash", *options, "--policy", "priority")
    assert result.returncode == 0, result.stderr
    assert "priority costs nothing: its times over those of stock" in result.stdout
