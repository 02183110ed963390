"""`headway bench race`: its rows, what it makes of results, and its program at work."""

from __future__ import annotations

import json
import sys

import pytest
from launch import execute, run_main
from made_results import measured, statement

from headway.errors import CommandError
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.output.table import Table
from headway.programs import interpreters
from headway.programs.processes import Window
from headway_lab.experiment import Choice
from headway_lab.measured.race import CALL, FORMS, LOCKED, LONG, PLAIN, SHORT, Race
from headway_lab.setting import PROGRAMS, Setting, program

pytestmark = pytest.mark.free_threading

RACE = Race()
THIS = interpreters.this()
WITH_GIL = THIS._replace(free_threading=False, version="3.13.0")
FREE = WITH_GIL._replace(free_threading=True)
FULL = Choice(WITH_GIL, FREE, (STOCK, "priority"))
# Of this interpreter, with a GIL if it can.
STOCK_SETTING = Choice(THIS).setting()
SAFE = ("x += 1", "obj.x += 1", "d[k] += 1", LOCKED)


def lost_here(parameters: Parameters) -> float:
    """In a million, as CPython from 3.10 on loses them."""
    if parameters["form"] == LOCKED:
        return 0
    if parameters["mode"] == "free-threaded":
        return 500_000
    if parameters["form"] in SAFE:
        return 0
    if parameters["additions"] == LONG:
        return 600_000
    return 150_000 if parameters["switch_interval"] < 0.001 else 0


def results(value: object = lost_here) -> Results:
    assert callable(value)
    return measured(RACE, FULL, value, python="3.13.0", free_threaded="3.13.5t")


def verdicts(found: Results) -> dict[str, list[str]]:
    table: Table = RACE.tables(found)[0]
    return {line[0].text: [cell.text for cell in line[1:]] for line in table.rows}


# Rows


def test_every_form_has_its_rows_by_interval_and_length() -> None:
    found = [row.parameters for row in RACE.rows(FULL) if row.parameters["mode"] == "threads"]
    for form in FORMS:
        of_form = [row for row in found if row["form"] == form and row["policy"] == STOCK]
        pairs = {(row["switch_interval"], row["additions"]) for row in of_form}
        assert pairs == {(s, n) for s in (0.005, 0.0001, 0.000001) for n in (SHORT, LONG)}
        assert len(of_form) == len(pairs)
        under_policy = [row for row in found if row["form"] == form and row["policy"] != STOCK]
        assert {row["switch_interval"] for row in under_policy} == {0.005, 0.000001}


def test_rows_without_a_gil_are_left_out_where_there_is_no_such_interpreter() -> None:
    left_out = [row.parameters for row in RACE.rows(Choice(WITH_GIL)) if row.left_out]
    assert {row["mode"] for row in left_out} == {"free-threaded"}
    assert {row["form"] for row in left_out} == set(FORMS)


def test_quick_rows_are_few_and_among_all() -> None:
    policies = (STOCK, "priority", "deadline")
    rows = RACE.rows(Choice(WITH_GIL, None, policies, quick=True))
    quick = [row.parameters for row in rows if not row.left_out]
    everything = [row.parameters for row in RACE.rows(Choice(WITH_GIL, FREE, policies))]
    assert all(row.parameters in everything for row in rows)
    assert 6 <= len(quick) <= 9


def test_the_user_chooses_intervals_and_threads() -> None:
    choice = Choice(WITH_GIL, None, (STOCK,), switch_intervals_s=(0.002,), threads=(3,), quick=True)
    rows = [row.parameters for row in RACE.rows(choice) if not row.left_out]
    assert {row["switch_interval"] for row in rows} == {0.002}
    assert {row["threads"] for row in rows} == {3}


def test_one_thread_is_left_out() -> None:
    rows = RACE.rows(Choice(WITH_GIL, FREE, threads=(1, 2)))
    left_out = {row.parameters["threads"]: row.left_out for row in rows}
    assert left_out == {1: "one thread has nobody to race with", 2: ""}


def test_no_threads_are_refused() -> None:
    with pytest.raises(CommandError, match="--threads 0: race needs threads") as refused:
        RACE.rows(Choice(WITH_GIL, None, threads=(0,)))
    assert refused.value.exit_code == 2


# Tables, charts and statements


def test_the_published_loss_differs_on_todays_interpreters_and_says_why() -> None:
    differing = [each for each in RACE.statements(results()) if not each.agrees]
    assert [each.text for each in differing] == [
        "published: x += 1 loses updates at 1 µs: most lost per million"
    ]
    assert "CPython from 3.10 on looks" in differing[0].why
    assert len(RACE.statements(results())) == 9


@pytest.mark.parametrize(
    ("words", "where", "lost"),
    [
        ("stock: with a lock", {"form": LOCKED, "policy": STOCK, "mode": "threads"}, 1),
        ("priority: with a lock", {"form": LOCKED, "policy": "priority"}, 1),
        ("free-threaded: with a lock", {"form": LOCKED, "mode": "free-threaded"}, 1),
        ("a call between load and store", {"form": CALL}, 0),
        ("free-threaded, x += 1 loses more", {"form": PLAIN, "mode": "free-threaded"}, 0),
        ("runs of 1,000", {"form": CALL, "additions": SHORT, "switch_interval": 0.005}, 150_000),
        ("runs of 200,000", {"form": CALL, "additions": LONG, "switch_interval": 0.005}, 1_000),
        ("priority: what loses none", {"form": PLAIN, "policy": "priority"}, 1),
    ],
)
def test_a_statement_differs_where_results_do(words: str, where: Parameters, lost: float) -> None:
    def other(parameters: Parameters) -> float:
        return lost if where.items() <= parameters.items() else lost_here(parameters)

    assert statement(RACE, results(), words).agrees
    assert not statement(RACE, results(other), words).agrees


def test_an_interpreter_that_loses_as_published_agrees() -> None:
    """CPython 3.9 did."""
    as_published = results(lambda found: 0 if found["form"] == LOCKED else 400_000)
    assert statement(RACE, as_published, "published: x += 1 loses").agrees


def test_a_form_is_safe_if_none_of_its_updates_was_ever_lost() -> None:
    assert verdicts(results()) == {
        form: ["safe", "safe", "unsafe"] if form in SAFE else ["unsafe"] * 3
        for form in FORMS
        if form != LOCKED
    } | {LOCKED: ["safe"] * 3}
    once = results()
    result = once.find(
        policy=STOCK,
        mode="threads",
        form=PLAIN,
        switch_interval=0.0001,
        threads=4,
        additions=SHORT,
    )
    assert result is not None
    result.values = [0.0, 0.25, 0.0]
    assert verdicts(once)[PLAIN] == ["unsafe", "safe", "unsafe"]
    assert RACE.tables(once)[0].title == "CPython 3.13.0 and 3.13.5t: forms that lost updates"


def test_what_nobody_looked_at_is_neither_safe_nor_unsafe() -> None:
    quick = measured(RACE, Choice(WITH_GIL, None, (STOCK, "priority"), quick=True), lost_here)
    assert verdicts(quick) == {
        CALL: ["unsafe", "-"],
        PLAIN: ["safe", "safe"],
        LOCKED: ["safe", "-"],
    }


def test_statements_without_their_rows_are_left_out() -> None:
    assert RACE.statements(Results("race", "", [], {})) == []
    # Nothing lost at any interval is no ratio.
    words = [each.text for each in RACE.statements(results(lambda _: 0))]
    assert not [text for text in words if "in runs of" in text]


def test_tables_and_charts_have_a_length_each() -> None:
    found = results()
    assert [table.title.partition(": ")[0] for table in RACE.tables(found)] == [
        "CPython 3.13.0 and 3.13.5t",
        *["stock"] * 2,
        *["priority"] * 2,
        "free-threaded",
    ]
    short = RACE.tables(found)[1]
    assert "1,000 additions each a run" in short.title
    assert short.headings == ["form", "5 ms", "100 µs", "1 µs"]
    assert [cell.value for cell in short.rows[FORMS.index(CALL)][1:]] == [0, 150_000, 150_000]
    charts = RACE.charts(found)
    assert [[line.name for line in chart.series] for chart in charts] == [list(FORMS)] * 2


# The program


def race(form: str, setting: Setting = STOCK_SETTING, additions: int = 1_000) -> dict[str, int]:
    words = (form, "3", str(additions), "0.000001")
    with program(setting, "race_threads", *words) as racing:
        racing.answer()
        racing.measure(Window.after(0.0, 0.1))
        answer: dict[str, int] = racing.answer()
    return answer


@pytest.mark.parametrize("form", FORMS)
def test_every_form_counts_what_it_lost(form: str) -> None:
    found = race(form)
    assert found["runs"] >= 1
    assert found["additions"] == found["runs"] * 3 * 1_000
    assert 0 <= found["lost"] < found["additions"]
    assert found["runs_that_lost"] <= found["runs"]
    assert (found["runs_that_lost"] == 0) == (found["lost"] == 0)
    if form in SAFE:
        assert found["lost"] == 0


@pytest.mark.skipif(not THIS.free_threading, reason="this build has a GIL")
def test_a_lock_holds_without_a_gil_too() -> None:
    free = Choice(THIS, THIS).free_threaded_setting()
    assert race(LOCKED, free)["lost"] == 0


def test_an_addition_that_lets_others_in_between_loses_what_they_did() -> None:
    """The same with threads that take turns by hand, so that it is not left to chance."""
    script = (
        "import json, threading, race_threads as r\n"
        "inside, go_on = threading.Event(), threading.Event()\n"
        "def slow():\n"
        "    if threading.current_thread().name == 'slow':\n"
        "        inside.set(); go_on.wait()\n"
        "    return 1\n"
        "r.one = slow\n"
        "thread = threading.Thread(target=r.add_result_of_python, args=(1,), name='slow')\n"
        "thread.start(); inside.wait()\n"
        "r.add_result_of_python(10)\n"
        "go_on.set(); thread.join()\n"
        "print(json.dumps([r.take_sum(), r.take_sum()]))\n"
    )
    told = execute([sys.executable, "-c", script], env={"PYTHONPATH": str(PROGRAMS)})
    assert json.loads(told.stdout) == [1, 0], told.stderr


@pytest.mark.slow("runs an experiment")
def test_it_measures_under_a_policy_too() -> None:
    options = ("--quick", "--values", "1", "--seconds", "0.02", "--policy", "stock")
    result = run_main("bench", "race", *options, "--policy", "deadline")
    assert result.returncode == 0, result.stderr
    assert "deadline: what loses none under stock loses none" in result.stdout
