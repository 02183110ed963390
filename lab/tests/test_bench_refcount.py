"""`refcount`: its rows, what it makes of results, and its programs and native counts at work."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from launch import execute

from headway.errors import CommandError
from headway.output.claim import Statement
from headway.output.results import Result, Results
from headway.programs import interpreters
from headway.programs.interpreters import Interpreter
from headway_lab import _native
from headway_lab.experiment import Choice
from headway_lab.measured import EXPERIMENTS
from headway_lab.measured.refcount import count_pairs
from headway_lab.measured.refcount_results import (
    KINDS,
    ONE,
    OWN,
    PAIRS_PER_BYTECODE,
    WITH_GIL,
    WITHOUT_GIL,
)
from headway_lab.setting import PROGRAMS

pytestmark = pytest.mark.free_threading

REFCOUNT = EXPERIMENTS["refcount"]
FREE_THREADING = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
SHORT_S = 0.01


def interpreter(**changes: Any) -> Interpreter:
    plain = Interpreter(sys.executable, "3.13.0", "3.13.0", False, False, "GCC", "", "0.1.0")
    return plain._replace(**changes)


GIL = interpreter()
# Another path of an interpreter that has the module.
FREE = interpreter(path=str(Path(sys.executable).with_name("python3")), free_threading=True)


def rows(choice: Choice) -> dict[tuple[str, int, str], str]:
    """Why each is left out."""
    found = REFCOUNT.rows(choice)
    named = {(*map(row.parameters.get, ("kind", "threads", "objects")),): row for row in found}
    assert len(named) == len(found)
    return {name: row.left_out for name, row in named.items()}  # type: ignore[misc]


def test_every_kind_has_one_thread_and_several() -> None:
    found = rows(Choice(GIL, FREE, threads=(1, 3)))
    assert not any(found.values())
    for kind in (*KINDS, WITHOUT_GIL):
        assert {(kind, 1, OWN), (kind, 3, OWN), (kind, 3, ONE)} <= set(found)
        assert (kind, 1, ONE) not in found
    assert [name for name in found if name[0] == WITH_GIL] == [(WITH_GIL, 1, OWN)]


def test_kinds_are_those_of_the_module() -> None:
    assert sorted(_native.refcount_kinds()) == sorted(KINDS)


def test_what_cannot_be_measured_is_left_out_with_a_reason() -> None:
    found = rows(Choice(interpreter(path="/nonexistent")))
    for (kind, _, _), reason in found.items():
        if kind in KINDS:
            assert reason == "/nonexistent has no headway-lab of its own, whose module counts"
        elif kind == WITHOUT_GIL:
            assert "3.13.0 is no free-threaded build" in reason
        else:
            assert reason == ""


def test_a_free_threaded_build_has_no_plain_counts() -> None:
    found = rows(Choice(FREE, FREE))
    assert "biased also with its GIL" in found.pop((WITH_GIL, 1, OWN))
    assert not any(found.values())


def test_counts_of_a_free_threaded_build_run_without_its_gil() -> None:
    for row in REFCOUNT.rows(Choice(GIL, FREE)):
        without_gil = row.parameters["kind"] == WITHOUT_GIL
        assert row.setting.python == (FREE if without_gil else GIL).path
        assert row.setting.options == (("-X", "gil=0") if without_gil else ())


def test_quick_has_few_rows_and_each_kind_once() -> None:
    found = rows(Choice(GIL, quick=True))
    assert len([name for name in found if not found[name]]) <= 9
    assert {kind for kind, threads, _ in found if threads == 1} == {*KINDS, WITH_GIL, WITHOUT_GIL}


def test_no_thread_counts_nothing() -> None:
    with pytest.raises(CommandError, match="--threads 0") as raised:
        REFCOUNT.rows(Choice(GIL, threads=(0, 1)))
    assert raised.value.exit_code == 2


# Medians of rows: with one thread, with two on objects of their own, with two on one.
LIKE_PUBLISHED = {
    "plain": (1.0, 1.0, 2.0),
    "immortal": (0.5, 0.5, 0.5),
    "atomic": (5.0, 5.0, 50.0),
    "buffered": (4.0, 4.0, 4.0),
    "biased": (1.2, 1.2, 20.0),
    WITH_GIL: (1.5,),
    WITHOUT_GIL: (2.0, 2.0, 20.0),
}


def made(medians: dict[str, tuple[float, ...]], **changes: float) -> Results:
    """`changes` are figures of all rows, but that plain counts of one object are always wrong."""
    made_rows = []
    for kind, values in medians.items():
        for (threads, objects), value in zip([(1, OWN), (2, OWN), (2, ONE)], values, strict=False):
            row = Result({"kind": kind, "threads": threads, "objects": objects})
            figures = {"bytecode_ns": 5.0, "bytecode_percent": value / 5.0 * 100, **changes}
            if kind in KINDS:
                figures = {"elapsed_ns": value, "wrong_by": 0.0, **figures}
            if kind == "plain" and objects == ONE:
                figures["wrong_by"] = 1000.0
            row.values = [value] * 3
            row.figures = {name: [figure] * 3 for name, figure in figures.items()}
            made_rows.append(row)
    return Results("refcount", "ns", made_rows, {})


def saying(words: str, results: Results) -> Statement:
    (found,) = [each for each in REFCOUNT.statements(results) if words in each.text]
    return found


def test_results_like_the_published_ones_agree() -> None:
    statements = REFCOUNT.statements(made(LIKE_PUBLISHED))
    assert len(statements) == 18
    assert [str(each) for each in statements if not each.agrees] == []


@pytest.mark.parametrize(
    ("words", "kind", "medians", "value"),
    [
        ("by one thread, an atomic count costs", "atomic", (1.5, 1.5, 15), 1.5),
        ("takes a thread less time than an atomic one", "buffered", (10, 10, 10), 2),
        ("still costs too much", "buffered", (1.5, 1.5, 1.5), 1.5),
        ("costs its owner about what", "biased", (2.5, 2.5, 25), 2.5),
        ("were a bytecode to take 7.3 ns", "atomic", (11, 11, 110), 90.96),
        ("as quick as here they slow by more", "atomic", (3, 3, 30), 26.4),
        ("biased counts slow it little", "biased", (1.9, 1.9, 25), 11.88),
        ("change at once collapses", "atomic", (5, 5, 5.5), 1.1),
        ("change at once does not", "buffered", (4, 4, 12), 3),
        ("nor does that of an immortal object", "immortal", (0.5, 0.5, 1), 2),
        ("atomic counts of objects of their own", "atomic", (5, 10, 50), 2),
        ("biased counts of objects of their own", "biased", (1.2, 2.4, 20), 2),
        ("cheap for its owner alone", "biased", (1.2, 1.2, 1.5), 1.25),
        ("CPython's own biased counts", WITHOUT_GIL, (4.5, 4.5, 45), 3),
        ("without a GIL, threads that count on objects", WITHOUT_GIL, (2, 4, 20), 2),
        ("an object that another thread made", WITHOUT_GIL, (2, 2, 3), 1.5),
    ],
)
def test_results_unlike_the_published_ones_differ(
    words: str, kind: str, medians: tuple[float, ...], value: float
) -> None:
    assert saying(words, made(LIKE_PUBLISHED)).agrees
    found = saying(words, made({**LIKE_PUBLISHED, kind: medians}))
    assert not found.agrees
    assert found.value == pytest.approx(value, rel=1e-3)


def test_a_count_that_is_wrong_is_told() -> None:
    found = saying("all other counts come out right", made(LIKE_PUBLISHED, wrong_by=2.0))
    assert (found.value, found.agrees) == (2, False)


def test_plain_counts_that_came_out_right_are_told() -> None:
    results = made(LIKE_PUBLISHED)
    lucky = results.find(kind="plain", threads=2, objects=ONE)
    assert lucky is not None
    lucky.figures["wrong_by"] = [0.0, 0.0]
    assert not saying("lose updates", results).agrees


def test_nothing_is_stated_of_what_was_not_measured() -> None:
    results = made(LIKE_PUBLISHED)
    for row in results:
        row.values, row.figures = [], {}
    assert REFCOUNT.statements(results) == []
    assert len(REFCOUNT.tables(results)) == 2
    assert REFCOUNT.charts(results) == []


def test_the_estimate_stands_beside_what_was_published() -> None:
    costs, by_threads = REFCOUNT.tables(made(LIKE_PUBLISHED))
    by_kind = {row[0].text: row for row in costs.rows}
    estimate = by_kind["atomic"][-1]
    assert estimate.value == pytest.approx(4 * PAIRS_PER_BYTECODE / 5 * 100)
    assert (estimate.published, by_kind["biased"][-1].published) == (30, 6)
    assert by_kind[WITH_GIL][-1].text == "-"
    assert all(len(row) == len(costs.headings) for row in costs.rows)
    atomic = [
        [cell.value for cell in row[2:]] for row in by_threads.rows if row[0].text == "atomic"
    ]
    # On one object or on its own: one thread is the same.
    assert atomic == [[5, 5], [5, 50]]


def test_a_chart_has_a_line_for_each_kind_and_its_objects() -> None:
    (chart,) = REFCOUNT.charts(made(LIKE_PUBLISHED))
    points = {series.name: [point[:2] for point in series.points] for series in chart.series}
    assert points["atomic, one"] == [(1, 5), (2, 50)]
    assert "CPython with a GIL, each its own" not in points
    assert len(points) == 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("threads", "objects"), [(1, OWN), (2, ONE)])
def test_native_counts_are_measured(kind: str, threads: int, objects: str) -> None:
    parameters = {"kind": kind, "threads": threads, "objects": objects}
    found = count_pairs(Choice(interpreters.this()).setting(), parameters, SHORT_S)
    assert found.value > 0
    assert found.figures["elapsed_ns"] > 0
    assert found.figures["bytecode_ns"] > 0
    if kind != "plain" or threads == 1:
        assert found.figures["wrong_by"] == 0
    percent = found.figures["bytecode_percent"]
    assert percent == pytest.approx(found.value / found.figures["bytecode_ns"] * 100)


@pytest.mark.parametrize(("threads", "objects"), [(1, OWN), (2, OWN), (2, ONE)])
def test_counts_of_cpython_are_measured(threads: int, objects: str) -> None:
    choice = Choice(interpreters.this(), interpreters.this() if FREE_THREADING else None)
    setting = choice.free_threaded_setting() if FREE_THREADING else choice.setting()
    kind = WITHOUT_GIL if FREE_THREADING else WITH_GIL
    parameters = {"kind": kind, "threads": threads, "objects": objects}
    found = count_pairs(setting, parameters, SHORT_S)
    assert found.value > 0
    assert set(found.figures) == {"bytecode_ns", "bytecode_percent"}


def test_a_thread_that_comes_late_counts_some() -> None:
    script = (
        "import list_copies\n"
        "late = list_copies.Copying(None)\n"
        "late.start(0); late.join()\n"
        "print(late.pairs > 0, late.cpu_ns > 0)\n"
    )
    told = execute([sys.executable, "-c", script], env={"PYTHONPATH": str(PROGRAMS)})
    assert told.stdout == "True True\n", told.stderr


def test_bytecodes_of_a_loop_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    # A program's threads end it where they fail; the tests' are to do so no longer than this one.
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    from bytecodes import bytecodes_of_loop

    def longer(n: int) -> None:
        before = n - 1
        while n > before - 1_000:
            n -= 1
            n -= 1

    def shorter(n: int) -> None:
        while n > 0:
            n -= 1

    # A comparison, a jump, and the names and the number that they need; three or four for `n -= 1`.
    assert 8 <= bytecodes_of_loop(shorter) <= 10
    assert 3 <= bytecodes_of_loop(longer) - bytecodes_of_loop(shorter) <= 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deferred", 1, 1, False), 'kind "deferred": there are plain, immortal, atomic, biased'),
        (("plain", 0, 1, False), "threads: found 0; there may be 1 to 64"),
        (("plain", 65, 1, False), "threads: found 65; there may be 1 to 64"),
    ],
)
def test_the_module_refuses_what_it_cannot_count(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        _native.refcount_measure(*arguments)


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_the_module_counts_without_the_gil_and_leaves_no_thread() -> None:
    before = tasks()
    looks, done = 0, threading.Event()

    def count() -> None:
        # With a switch interval of a minute, the loop below runs only while the GIL is dropped.
        while looks < 3:
            _native.refcount_measure("buffered", 2, 100_000, False)
        done.set()

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        counting = threading.Thread(target=count)
        counting.start()
        while not done.wait(0.001):
            looks += 1
        counting.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert looks >= 3
    deadline = time.monotonic() + 10
    # The kernel lists a thread for a moment after it was joined.
    while not tasks() <= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tasks() <= before
