"""`headway top` without a terminal: answers as text, hostile and missing values,
tables that fit, text for scripts."""

from __future__ import annotations

import math
from typing import Any

import answers
import pytest
from answers import EVIL

from headway.top import figures, once, page, tables


def assert_printable(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n")), repr(text)


@pytest.mark.parametrize(
    ("shown", "value", "text"),
    [
        (figures.digits, 12345.6, "12,346"),
        (figures.digits, 1.5, "1.5"),
        (figures.digits, 0.93, "0.93"),
        (figures.seconds, 0.0042, "4.2 ms"),
        (figures.size, 33554432, "32 MiB"),
        (figures.cores, 1.0, "1 core"),
        (figures.cores, 1.857, "1.86 cores"),
        (figures.share, 0.415, "41.5 %"),
        (figures.share, 0.0001, "< 0.1 %"),
        (figures.share, 0.0, "0 %"),
        (figures.short, 37_200, "37.2k"),
        (figures.age, 12_000, "3 h 20 min"),
        (figures.age, 45, "45 s"),
        (figures.age, 86_400 * 4, "4 d"),
    ],
)
def test_figures_have_three_digits_and_their_unit(shown: Any, value: float, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    "kind", [value for value in vars(figures).values() if isinstance(value, figures.Kind)]
)
@pytest.mark.parametrize(
    "value",
    [None, "", EVIL, "1e9", True, math.nan, math.inf, -1e308, 10**400, [EVIL, 1], {EVIL: 1}],
)
def test_any_value_is_shown_on_one_printable_line(kind: figures.Kind, value: object) -> None:
    human, plain = kind.human(value), kind.plain(value)
    assert human
    assert human.isprintable()
    assert plain.isprintable()
    assert len(plain.split()) == 1


def test_a_narrow_table_keeps_its_first_figures() -> None:
    table = tables.processes(answers.now())
    wide, narrow = table.fitted(300), table.fitted(60)
    assert [column.name for column in wide.columns] == [each.name for each in tables.PROCESSES]
    kept = [column.name for column in narrow.columns]
    assert {"pid", "rps", "response_p95"} <= set(kept)
    assert len(kept) < len(wide.columns)
    assert [name for name in (each.name for each in wide.columns) if name in kept] == kept


def test_processes_are_sorted_by_number_and_by_what_is_asked_for() -> None:
    by_name = tables.processes(answers.now())
    assert [row["pid"] for row in by_name.rows] == [9, 10]
    by_requests = tables.processes(answers.now(), sort="summary.rps")
    assert [row["pid"] for row in by_requests.rows] == [10, 9]


def test_slots_show_the_latest_step_with_figures() -> None:
    row = {"busy": [[0.0, 0.5], [1.0, 0.0, None], None]}
    assert tables.slot_bars(row) == "█▁ "
    assert tables.slot_bars({"busy": [None]}) == ""


def test_text_for_scripts_has_stable_columns_of_single_words() -> None:
    drawn = once.draw("http://127.0.0.1:1", answers.now("a group"), "overview", {})
    rows = [line.split() for line in drawn.splitlines() if line and not line.startswith("#")]
    head = rows[0]
    assert head[:6] == ["scope", "host", "group", "pid", "processes", "rps_per_s"]
    assert {len(row) for row in rows} == {len(head)}
    total = dict(zip(head, rows[1], strict=True))
    assert total["scope"] == "total"
    assert total["rps_per_s"] == "200.0"
    assert total["response_p95_ms"] == "20.000"
    assert total["gil_wait_p95_ms"] == "8.000"
    assert total["gil_held_pct"] == "90.0"
    assert total["busy_pct"] == "80.0"
    assert [row[0] for row in rows[1:]] == ["total", "group", "process", "process"]
    assert rows[2][2] == "a_group"


def test_text_for_scripts_tells_the_verdict_with_evidence_and_advice() -> None:
    drawn = once.draw("here", answers.now(), "overview", {})
    assert "# total: GIL-bound (warning)" in drawn
    assert "evidence: GIL held: 90 % (limit 80 %)" in drawn
    assert "try: more processes" in drawn
    assert "from 1,000 requests in 10 s" in drawn


def test_a_program_that_serves_nothing_has_no_lines_about_requests() -> None:
    spread = {"p50": 0.005, "p95": 0.0051, "p99": 0.0052}
    summary = {"processes": 1, "requests": 0, "cpu": 0.9, "take_wait": spread}
    summary["gil"] = {"held": 0.97, "handoff": 0.02, "idle": 0.01}
    program = {"summary": summary, "config": {"threads": None}}
    drawn = "\n".join(page.totals(program))
    assert drawn.startswith("GIL wait p50 5 ms p95 5.1 ms p99 5.2 ms   held 97 %")
    assert "CPU 0.9 cores" in drawn
    for word in ("request", "response", "5xx", "busy"):
        assert word not in drawn
    series = {"points": [{"summary": summary}], "from": 0.0, "to": 1.0}
    charts = [line.split("  ")[0] for line in page.history(series, 100)]
    assert charts[:3] == ["GIL wait p95", "GIL held", "CPU cores"]
    server = {**program, "config": {"threads": 4}}
    assert page.totals(server)[0].startswith("requests")


def test_processes_with_event_loops_have_a_line_and_columns_of_them() -> None:
    loops = {"late": 2.0, "late_computed": 0.01, "late_waited": 0.0, "late_blocked": 0.24}
    looping = {"loops": {**loops, "iterating": 0.0}, "loop_iteration": answers.quantiles(0.001)}
    (line,) = [each for each in page.totals(answers.measured(**looping)) if "event loop" in each]
    assert line.startswith("event loop p50 1 ms p95 2 ms p99 3 ms   late 2 /s: computed 1 %")
    assert line.endswith("blocked 24 % of the time")
    looping["loops"] |= {"iterating": 3.0}
    (line,) = [each for each in page.totals(answers.measured(**looping)) if "event loop" in each]
    assert line.endswith("not ended for 3 s")
    assert not [each for each in page.totals(answers.measured()) if "event loop" in each]
    now = answers.now()
    names = [each.name for each in tables.LOOPS]
    assert not {each.name for each in tables.processes(now).columns} & set(names)
    for measured in (now["total"], now["groups"][0], now["processes"][0]):
        measured["summary"] |= looping
    for table in (tables.processes(now), tables.groups(now)):
        assert [each.name for each in table.columns][-2:] == names
        assert ["3 ms", "25 %"] in [cells[-2:] for cells in map(table.cells, table.rows)]
    drawn = once.draw("here", now, "overview", {})
    rows = [line.split() for line in drawn.splitlines() if line and not line.startswith("#")]
    assert rows[0][-2:] == ["loop_p99_ms", "loop_late_pct"]
    assert [row[-2:] for row in rows[1:3]] == [["3.000", "25.0"]] * 2
    assert rows[4][-2:] == ["-", "-"]


def test_the_sentences_of_a_verdict_are_told_whole() -> None:
    verdict = {
        "title": "a",
        "severity": "ok",
        "text": "so " * 200 + "on.",
        "sample": {"seconds": 2},
    }
    drawn = list(page.verdict_lines({**verdict, "advice": [{"try": "b", "expect": "c " * 300}]}))
    assert drawn[1].endswith("so on.")
    assert len(drawn[3]) > 500
    assert drawn[-1] == "  from 2 s"


def test_a_stack_is_told_line_by_line_and_escaped() -> None:
    stack = "work (shop.py:1)\npage\x1b[31m (shop.py:9)"
    event = {
        "time": 1.0,
        "pid": 1,
        "slow_path_info": f"/{EVIL}",
        "slow_duration": 0.5,
        "slow_stack": stack,
    }
    drawn = once.draw("here", answers.now(), "slow", {"events": [event]})
    assert_printable(drawn)
    assert "#   work (shop.py:1)\n#   page\\x1b[31m (shop.py:9)\n" in drawn


def hostile(value: Any) -> Any:
    """The same answer with every string in it replaced."""
    if isinstance(value, dict):
        return {key: hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return EVIL if isinstance(value, str) else value


def test_nothing_hostile_reaches_the_output() -> None:
    now = hostile(answers.now())
    for view in tables.VIEWS:
        assert_printable(once.draw(EVIL, now, view.name, {"events": [hostile({"url": "x"})]}))
    for row in [now["total"], *now["groups"], *now["processes"]]:
        assert_printable("\n".join(page.details(row)))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"total": None, "groups": {}, "processes": [1, "x", None]},
        {"total": {"summary": {"processes": 1}}, "recorder": []},
        {"total": {"summary": [], "verdict": {"evidence": 1, "advice": [1], "sample": []}}},
        {"time": "x", "processes": [{"pid": None, "summary": {"gil": 1, "response": []}}]},
        {"total": {"verdict": {"severity": {}}, "config": {"switch_interval": ["x", None]}}},
    ],
)
def test_an_answer_of_another_shape_is_shown_as_unknown(answer: Any) -> None:
    for view in tables.VIEWS:
        assert once.draw("here", answer, view.name, answer).startswith("# headway top here")
    assert tables.processes(answer, answer).fitted(80).title == "processes"
    assert page.totals(answer.get("total"))
    assert page.details(answer) is not None
    assert list(page.history(answer, 80)) == []


def test_lines_that_make_threads_wait_have_their_place_and_endpoint() -> None:
    line = {"function": "score", "file": "shop.py", "line": 41, "endpoint": "/", "waited": 1.5}
    handoff = {"function": "(handoff)", "file": "", "line": 0, "endpoint": "", "waited": 0.01}
    answer = {"lines": [line, handoff, {**line, "function": EVIL, "file": EVIL}]}
    table = tables.lines(answer)
    assert table.cells(table.rows[0]) == ["1.5 s", "score", "shop.py:41", "/"]
    assert table.cells(table.rows[1]) == ["10 ms", "(handoff)", "-", "-"]
    assert_printable("".join(table.cells(table.rows[2])))
    drawn = once.draw("here", answers.now(), "holders", answer)
    assert "1500.000 score shop.py:41 /" in " ".join(drawn.split())


def test_lines_that_event_loops_are_late_for_have_what_they_did_and_who_held_the_gil() -> None:
    line = {"function": "score", "file": "shop.py", "line": 41, "part": "waited", "late": 1.5}
    answer = {"late_lines": [{**line, "callback": "handle", "holder": EVIL}]}
    table = tables.late_lines(answer)
    cells = table.cells(table.rows[0])
    assert cells[:5] == ["1.5 s", "waited", "score", "shop.py:41", "handle"]
    assert_printable("".join(cells))
    drawn = once.draw("here", answers.now(), "holders", answer)
    assert "1500.000 waited score shop.py:41 handle" in " ".join(drawn.split())


def test_who_measures_less_is_said_to_measure_less() -> None:
    assert "(lower bound)" in "\n".join(page.totals(answers.measured(exact=False)))
    assert "(lower bound)" not in "\n".join(page.totals(answers.measured()))


def test_what_the_recorder_lost_is_said() -> None:
    health = {
        "received": 5,
        "malformed": 3,
        "sequence_gaps": 0,
        "store": {"error": "disk full", "not_stored": 7},
    }
    assert page.health(health) == "malformed 3, store: not stored 7, store: disk full"
    assert page.health({"received": 5, "malformed": 0, "store": None}) == ""
