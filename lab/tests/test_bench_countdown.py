"""`headway bench countdown`: its rows, what it makes of results, and its program at work."""

from __future__ import annotations

import sys
import time

import pytest
from launch import execute, run_main
from made_results import measured, statement

from headway.errors import CommandError
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.programs import interpreters
from headway.programs.processes import ProgramError, Window
from headway_lab.experiment import Choice
from headway_lab.measured.countdown import PUBLISHED_S, Countdown, count_down
from headway_lab.setting import PROGRAMS, Setting, program

COUNTDOWN = Countdown()
WITH_GIL = interpreters.this()._replace(free_threading=False, version="3.13.0")
FREE = WITH_GIL._replace(free_threading=True)
FULL = Choice(WITH_GIL, FREE, (STOCK, "priority"))
PLAIN = Setting(None, 0.005)


def of(**parameters: object) -> Parameters:
    stock = {"policy": STOCK, "switch_interval": 0.005, "threads": 1}
    return {**stock, "mode": "threads", "timers": "default", **parameters}


def published_s(parameters: Parameters) -> float:
    """As published, where nothing was: a single thread's time with a GIL, 2 cores' without."""
    if parameters["mode"] == "free-threaded":
        return 6.6 / min(parameters["threads"], 2)
    return COUNTDOWN.published({**parameters, "policy": STOCK}) or 6.6


# Rows


def test_every_published_figure_stands_beside_its_row() -> None:
    rows = [row.parameters for row in COUNTDOWN.rows(FULL)]
    for interval_s, published in PUBLISHED_S.items():
        for threads, seconds in zip((1, 2, 4, 8), published, strict=True):
            row = of(switch_interval=interval_s, threads=threads)
            assert rows.count(row) == 1
            assert COUNTDOWN.published(row) == seconds
    # From there on the timers' slack decides; the same was published for it.
    exact = [row for row in rows if row["timers"] == "exact" and row["policy"] == STOCK]
    assert {row["switch_interval"] for row in exact} == {0.0001, 0.00001, 0.000001}
    assert COUNTDOWN.published(of(switch_interval=1e-6, threads=8, timers="exact")) == 86.44


def test_nothing_was_published_of_policies_other_intervals_and_free_threading() -> None:
    for other in (
        of(policy="priority"),
        of(mode="free-threaded"),
        of(switch_interval=0.002),
        of(threads=3),
    ):
        assert COUNTDOWN.published(other) is None


def test_a_policy_has_the_rows_of_stock() -> None:
    def rows(policy: str) -> list[tuple[object, ...]]:
        found = [row.parameters for row in COUNTDOWN.rows(FULL) if row.setting.policy == policy]
        return [(row["switch_interval"], row["threads"], row["timers"]) for row in found]

    def of_stock() -> list[tuple[object, ...]]:
        found = [
            row.parameters for row in COUNTDOWN.rows(FULL) if row.parameters["policy"] == STOCK
        ]
        found = [row for row in found if row["mode"] == "threads"]
        return [(row["switch_interval"], row["threads"], row["timers"]) for row in found]

    assert rows("priority") == of_stock()


def test_rows_without_a_gil_are_left_out_where_there_is_no_such_interpreter() -> None:
    left_out = [row for row in COUNTDOWN.rows(Choice(WITH_GIL)) if row.left_out]
    assert [row.parameters["mode"] for row in left_out] == ["free-threaded"] * 4
    assert "is no free-threaded build" in left_out[0].left_out
    free = [row for row in COUNTDOWN.rows(FULL) if row.parameters["mode"] == "free-threaded"]
    assert not any(row.left_out for row in free)
    assert free[0].setting.options == ("-X", "gil=0")


def test_quick_rows_are_few_and_among_all() -> None:
    quick = [row.parameters for row in COUNTDOWN.rows(Choice(WITH_GIL, None, quick=True))]
    everything = [row.parameters for row in COUNTDOWN.rows(FULL)]
    assert all(row in everything for row in quick)
    assert 4 <= len(quick) <= 9


def test_the_user_chooses_intervals_and_threads() -> None:
    choice = Choice(WITH_GIL, None, (STOCK,), switch_intervals_s=(0.002,), threads=(3,))
    assert COUNTDOWN.rows(choice)[0].parameters == of(switch_interval=0.002, threads=3)
    assert len([row for row in COUNTDOWN.rows(choice) if not row.left_out]) == 1


def test_no_threads_are_refused() -> None:
    with pytest.raises(CommandError, match="--threads 0: countdown needs a thread") as refused:
        COUNTDOWN.rows(Choice(WITH_GIL, None, threads=(0,)))
    assert refused.value.exit_code == 2


# Tables, charts and statements


def published_results() -> Results:
    return measured(COUNTDOWN, FULL, published_s, cpus=2)


def test_all_statements_agree_with_what_was_published() -> None:
    statements = COUNTDOWN.statements(published_results())
    assert len(statements) == 13
    assert [each.text for each in statements if not each.agrees] == []


@pytest.mark.parametrize(
    ("words", "where", "value"),
    [
        ("at 5 ms, 4 threads take as long", {"switch_interval": 0.005, "threads": 4}, 3.3),
        ("one thread takes as long at 1 µs", {"switch_interval": 1e-6, "threads": 1}, 9.0),
        ("exact timers, at 1 µs: the time of 8", {"switch_interval": 1e-6, "threads": 8}, 6.9),
        ("exact timers: it rises", {"switch_interval": 1e-6, "threads": 8}, 12.0),
        ("priority, at 5 ms: 8 threads", {"policy": "priority", "threads": 8}, 60.0),
        ("priority, default timers, at 1 µs", {"policy": "priority", "threads": 8}, 100.0),
        ("2 threads on 2 cores are 2 times", {"mode": "free-threaded", "threads": 2}, 6.6),
        ("8 threads on 2 cores take as long", {"mode": "free-threaded", "threads": 8}, 6.6),
    ],
)
def test_a_statement_differs_where_results_do(words: str, where: Parameters, value: float) -> None:
    def other_s(parameters: Parameters) -> float:
        return value if where.items() <= parameters.items() else published_s(parameters)

    assert statement(COUNTDOWN, published_results(), words).agrees
    assert not statement(COUNTDOWN, measured(COUNTDOWN, FULL, other_s, cpus=2), words).agrees


def test_growth_that_ends_at_the_timers_slack_differs_and_says_why() -> None:
    """As Linux has it by default: all small intervals are alike."""

    def as_on_linux_s(parameters: Parameters) -> float:
        with_slack = parameters["mode"] == "threads" and parameters["timers"] == "default"
        return 6.6 if with_slack else published_s(parameters)

    found = measured(COUNTDOWN, FULL, as_on_linux_s, cpus=2)
    differing = [each for each in COUNTDOWN.statements(found) if not each.agrees]
    assert [each.text.partition(":")[0] for each in differing] == [
        "default timers, at 1 µs",
        "default timers",
    ]
    assert all("50 us" in each.why for each in differing)


def test_statements_without_their_rows_are_left_out() -> None:
    only_one = measured(COUNTDOWN, Choice(WITH_GIL, None, threads=(1,)), published_s, cpus=2)
    (one_thread,) = COUNTDOWN.statements(only_one)
    assert "one thread takes as long" in one_thread.text
    assert COUNTDOWN.statements(Results("countdown", "s", [], {})) == []


def test_tables_and_charts_have_a_policy_each() -> None:
    found = published_results()
    titles = [table.title.partition(":")[0] for table in COUNTDOWN.tables(found)]
    with_gil = ["stock", "stock, exact timers", "priority", "priority, exact timers"]
    assert titles == [*with_gil, "free-threaded"]
    stock = COUNTDOWN.tables(found)[0]
    assert stock.headings == ["switch interval", "1 thread", "2 threads", "4 threads", "8 threads"]
    assert stock.rows[0][0].text == "100 ms"
    assert (stock.rows[0][1].value, stock.rows[0][1].published) == (7.29, 7.29)
    assert stock.note.endswith("6.52 s by 1, 6.57 s by 2, 6.59 s by 4, 6.58 s by 8.")
    assert COUNTDOWN.tables(found)[2].note == ""
    charts = COUNTDOWN.charts(found)
    assert [chart.title.partition(":")[0] for chart in charts] == with_gil
    assert [line.name for line in charts[1].series] == ["100 µs", "10 µs", "1 µs", "free-threaded"]
    assert charts[1].series[2].published[-1] == (8, 86.44)
    assert list(charts[2].series[0].published) == []


# The program


@pytest.mark.parametrize("threads", [1, 3])
def test_everything_is_counted_down(threads: int) -> None:
    words = (str(threads), "60001", "0.001")
    with program(PLAIN, "countdown_threads", *words) as counting:
        counting.answer()
        counting.measure(Window.after(0.0, 30.0))
        answer = counting.answer()
    assert answer["decrements"] == 60001 // threads * threads
    assert 0 < answer["seconds"] < 30


def test_what_takes_too_long_ends_with_what_was_counted_so_far() -> None:
    with program(PLAIN, "countdown_threads", "2", "1000000000000", "0.005", "exact") as counting:
        counting.answer()
        window = Window.after(0.0, 0.05)
        counting.measure(window)
        answer = counting.answer()
        answered_ns = time.monotonic_ns()
    assert answered_ns >= window.end_ns
    assert 0 < answer["decrements"] < 1_000_000_000_000
    assert 0 < answer["seconds"] <= (answered_ns - window.begin_ns) / 1e9


def test_exact_timers_are_those_of_its_threads() -> None:
    script = (
        "import ctypes, threading, countdown_threads\n"
        "def slack_ns(): print(ctypes.CDLL(None).prctl(PR_GET_TIMERSLACK))\n"
        "PR_GET_TIMERSLACK = 30\n"
        "countdown_threads.make_timers_exact()\n"
        "thread = threading.Thread(target=slack_ns); thread.start(); thread.join()\n"
    )
    told = execute([sys.executable, "-c", script], env={"PYTHONPATH": str(PROGRAMS)})
    assert told.stdout == "1\n", told.stderr


def test_only_exact_timers_need_ctypes() -> None:
    """Which CPython is built without where there is no libffi."""
    script = "import sys; sys.modules['ctypes'] = None; import countdown_threads, bytecodes"
    told = execute([sys.executable, "-c", script], env={"PYTHONPATH": str(PROGRAMS)})
    assert told.returncode == 0, told.stderr


def test_a_value_is_scaled_to_a_hundred_million_decrements() -> None:
    least = count_down(PLAIN, 1, 200_000, 30.0)
    # From 1 ns to 10 us for a decrement.
    assert 0.1 < least < 1_000


def test_a_program_that_fails_is_an_error() -> None:
    with pytest.raises(ProgramError, match=r"countdown_threads\.py under stock 5 ms ended"):
        count_down(PLAIN, 0, 200_000, 1.0)


@pytest.mark.slow("runs an experiment")
def test_it_measures_under_a_policy_too() -> None:
    options = ("--values", "1", "--seconds", "0.02", "--threads", "2", "--switch-interval", "1e-5")
    result = run_main("bench", "countdown", "--policy", "stock", "--policy", "deadline", *options)
    assert result.returncode == 0, result.stderr
    assert "deadline, exact timers: seconds per 100,000,000 decrements" in result.stdout
    assert "deadline, exact timers, at 10 µs: 2 threads take no longer" in result.stdout
