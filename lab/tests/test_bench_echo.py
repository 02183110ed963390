"""`headway bench echo`: its rows, how a value is counted, what is made of results, real values."""

from __future__ import annotations

import json
import os
import random
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from launch import environment, execute, run_main

from headway.errors import CommandError
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.programs import interpreters
from headway.programs.processes import ProgramError, Window
from headway_lab.experiment import MODES, Choice, Measured, Row
from headway_lab.measured import echo_value
from headway_lab.measured.echo import PUBLISHED_PER_S, Echo
from headway_lab.measured.echo_value import Beside, answered_in, started_on
from headway_lab.setting import PROGRAMS, program

ECHO = Echo()
THIS = interpreters.this()
WITH_GIL = THIS._replace(free_threading=False, version="3.13.0")
POLICIES = (STOCK, "priority", "deadline")
FULL = Choice(WITH_GIL, WITH_GIL._replace(free_threading=True), POLICIES)
SECONDS = 0.1
LATE = "the threads started only after the window's end"

Parameters = dict[str, Any]


def parameters(choice: Choice) -> list[Parameters]:
    return [row.parameters for row in ECHO.rows(choice)]


def row(
    cpu_threads: int,
    switch_interval: float = 0.005,
    policy: str = STOCK,
    mode: str = "threads",
    cores: str = "free",
) -> Parameters:
    return {
        "policy": policy,
        "switch_interval": switch_interval,
        "cpu_threads": cpu_threads,
        "mode": mode,
        "cores": cores,
    }


# Rows


def test_each_published_figure_has_its_row() -> None:
    found = {tuple(each.values()): ECHO.published(each) for each in parameters(FULL)}
    assert len(found) == len(parameters(FULL))
    for interval_s, by_threads in PUBLISHED_PER_S.items():
        for cpu_threads, per_s in by_threads.items():
            assert found[tuple(row(cpu_threads, interval_s).values())] == per_s
    one = [found[tuple(row(count, cores="one").values())] for count in (0, 1, 2, 4, 8)]
    assert one == [24_000, 12_000, 3_000, 30, 10]
    processes = [found[tuple(row(count, mode="processes").values())] for count in (1, 2, 4)]
    assert processes == [20_000] * 3


def test_what_nobody_published_has_no_figure_beside_it() -> None:
    for other in (
        row(8),
        row(1, 0.002),
        row(1, policy="priority"),
        row(1, cores="client elsewhere"),
        row(1, 0.1, cores="one"),
        row(1, mode="interpreters"),
    ):
        assert ECHO.published(other) is None


def test_each_policy_is_measured_where_stock_is() -> None:
    found = parameters(FULL)
    for policy in POLICIES:
        for cpu_threads in (0, 1, 2, 4, 8):
            assert row(cpu_threads, policy=policy) in found
        assert row(1, policy=policy, cores="one") in found


def test_quick_has_few_rows() -> None:
    found = parameters(Choice(WITH_GIL, None, POLICIES, quick=True))
    assert 6 <= len(found) <= 9
    assert {each["policy"] for each in found} == set(POLICIES)


def test_what_is_chosen_is_measured_and_nothing_twice() -> None:
    choice = Choice(
        WITH_GIL, None, (STOCK, "priority"), (0.002, 0.001), (3,), modes=("threads", "processes")
    )
    assert parameters(choice) == [
        row(3, 0.002),
        row(3, 0.001),
        row(3, 0.002, "priority"),
        row(3, 0.001, "priority"),
        row(3, 0.002, mode="processes"),
        row(3, 0.002, cores="client elsewhere"),
        row(3, 0.001, cores="client elsewhere"),
        row(3, 0.002, "priority", cores="client elsewhere"),
        row(3, 0.002, cores="one"),
        row(3, 0.002, "priority", cores="one"),
    ]


def test_what_has_one_interval_has_that_of_the_tables_that_compare() -> None:
    """5 ms if it was chosen, the first otherwise."""
    for intervals_s, expected in (((0.1, 0.005), 0.005), ((0.1, 0.01), 0.1)):
        choice = replace(FULL, switch_intervals_s=intervals_s, threads=(1,))
        elsewhere = [
            each
            for each in parameters(choice)
            if each["mode"] != "threads" or each["cores"] == "one"
        ]
        assert {each["mode"] for each in elsewhere} == set(MODES)
        assert {each["switch_interval"] for each in elsewhere} == {expected}
        titles = [table.title for table in ECHO.tables(made(as_published, choice))]
        assert f"requests at {expected * 1e3:g} ms, by policy" in titles
        assert "requests/s, by the processors that server and client may use" in titles


def test_without_cpu_bound_work_there_is_nowhere_for_it_to_run() -> None:
    found = parameters(Choice(WITH_GIL, None, threads=(0,)))
    assert {each["mode"] for each in found} == {"threads", "free-threaded"}


def test_rows_that_an_interpreter_cannot_have_say_why() -> None:
    old = WITH_GIL._replace(version="3.11.7")
    reasons = {
        each.parameters["mode"]: each.left_out
        for each in ECHO.rows(Choice(old))
        if each.parameters["cores"] == "free"
    }
    assert reasons.pop("threads") == reasons.pop("processes") == ""
    assert reasons == {
        "interpreters": "CPython 3.11.7 has no own-GIL sub-interpreters (3.12 has)",
        "free-threaded": "CPython 3.11.7 is no free-threaded build (--free-threaded)",
    }


@pytest.mark.parametrize("mode", ["interpreters", "free-threaded"])
def test_a_mode_that_an_interpreter_cannot_have_is_refused_by_name(mode: str) -> None:
    old = WITH_GIL._replace(version="3.11.7")
    with pytest.raises(CommandError, match=rf"^--mode {mode}: CPython 3\.11\.7 ") as refused:
        ECHO.rows(Choice(old, modes=(mode,)))
    assert refused.value.exit_code == 2


def test_one_processor_is_not_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    left_out = {each.parameters["cores"]: each.left_out for each in ECHO.rows(Choice(WITH_GIL))}
    assert left_out["client elsewhere"] == "this process may use one processor, and that takes two"
    assert left_out["one"] == ""


# How a value is counted


def asked(first_sent_ns: int, *latencies_ns: int, answered: bool = True) -> dict[str, Any]:
    return {
        "first_sent_ns": first_sent_ns,
        "latencies_ns": list(latencies_ns),
        "answered": answered,
    }


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        (asked(1000, 100, 400, 500), 3.0),
        (asked(900, 200, 900), 1.5),
        (asked(900, 200, 800, 400), 1.75),
        (asked(0, 4000), 0.25),
        (asked(900, 200, 5000, answered=False), 0.5),
        (asked(900, 5000, answered=False), 0.0),
    ],
    ids=["whole", "begun before", "cut at both ends", "longer", "then none", "none"],
)
def test_a_request_counts_with_its_share_of_the_window(
    answers: dict[str, Any], count: float
) -> None:
    window = Window(1000, 2000)
    assert answered_in(window, answers) == pytest.approx(count)


@pytest.mark.parametrize("window_ns", [300, 1_000, 25_000])
def test_the_count_is_right_on_average_however_short_the_window(window_ns: int) -> None:
    """Latencies of 100 and of 3,000 by turns of chance: 1,550 on average."""
    chance = random.Random(2010)
    latencies_ns = [chance.choice((100, 3_000)) for _ in range(1_000)]
    ends_ns = list(accumulate(latencies_ns, initial=0))
    counts = []
    for _ in range(10_000):
        begin_ns = chance.randrange(ends_ns[-1] - window_ns)
        first = bisect_right(ends_ns, begin_ns) - 1
        beyond = bisect_left(ends_ns, begin_ns + window_ns)
        answers = asked(ends_ns[first], *latencies_ns[first:beyond])
        counts.append(answered_in(Window(begin_ns, begin_ns + window_ns), answers))
    assert fmean(counts) / window_ns == pytest.approx(1_000 / ends_ns[-1], rel=0.05)


@pytest.mark.parametrize(
    ("cpu_threads", "interval_s", "mode", "seconds"),
    [
        (0, 0.1, "threads", 0.5),
        (1, 0.1, "threads", 2.0),
        (4, 0.1, "threads", 5.0),
        (4, 0.005, "threads", 0.5),
        (4, 0.1, "processes", 0.5),
    ],
)
def test_rows_of_slow_requests_are_measured_longer(
    cpu_threads: int, interval_s: float, mode: str, seconds: float
) -> None:
    plain = FULL.setting()
    beside = Beside(plain._replace(switch_interval_s=interval_s), plain, cpu_threads, mode, "free")
    assert beside.seconds(0.5) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("cpu_threads", "interval_s", "mode", "seconds"),
    [
        (0, 0.1, "threads", 0.2),
        (8, 0.1, "threads", 1.8),
        (8, 0.1, "processes", 0.2),
        (64, 10.0, "threads", 5.2),
    ],
)
def test_the_warm_up_has_room_for_a_request_and_an_end(
    cpu_threads: int, interval_s: float, mode: str, seconds: float
) -> None:
    plain = FULL.setting()
    beside = Beside(plain._replace(switch_interval_s=interval_s), plain, cpu_threads, mode, "free")
    assert beside.warm_up_s == pytest.approx(seconds)


# Tables, charts and statements


def made(rate: Callable[[Parameters], float], choice: Choice = FULL) -> Results:
    rows = []
    for each in ECHO.rows(choice):
        result = Result(each.parameters, ECHO.published(each.parameters))
        result.values = [rate(each.parameters)] * 3
        result.figures = {"p50_s": [0.001] * 3, "p99_s": [0.002] * 3, "max_s": [0.01] * 3}
        if each.parameters["cpu_threads"]:
            result.figures["work_share"] = [0.9] * 3
        if each.parameters["policy"] != STOCK:
            result.figures["left_share"] = [1.0] * 3
        rows.append(result)
    return Results("echo", ECHO.unit, rows, {})


def as_published(each: Parameters) -> float:
    """And in its way where nobody published a figure."""
    published = ECHO.published(each)
    if published is not None:
        return published
    if each["policy"] == STOCK and each["mode"] == "threads":
        return (
            0.5 / each["switch_interval"] / each["cpu_threads"] if each["cpu_threads"] else 30_000
        )
    return 20_000 if each["cpu_threads"] else 30_000


def verdicts(rate: Callable[[Parameters], float]) -> dict[str, Statement]:
    return {each.text: each for each in ECHO.statements(made(rate))}


def one(found: dict[str, Statement], beginning: str) -> Statement:
    matching = [each for text, each in found.items() if text.startswith(beginning)]
    assert len(matching) == 1, (beginning, list(found))
    return matching[0]


def test_the_published_figures_agree_with_every_statement() -> None:
    found = verdicts(as_published)
    assert len(found) == 15 + 2 * 5
    assert [str(each) for each in found.values() if not each.agrees] == []


@pytest.mark.parametrize(
    ("beginning", "value"),
    [
        ("stock: requests/s are proportional to 1/interval", -0.93),
        ("stock: requests/s halve as CPU-bound threads double", 0.55),
        ("stock, a processor for the server alone: requests/s are proportional", -1),
        ("stock, a processor for the server alone: requests/s halve", 0.5),
        ("stock: from 0.1 ms to 0.01 ms requests/s grow by less", 3.44),
        ("stock: from 0.01 ms to 0.001 ms they no longer grow", 0.909),
        ("stock: 1 CPU-bound thread costs an echo server most", 300),
        ("1 CPU-bound process instead costs little", 0.667),
        ("stock: server and client on one processor do better", 120),
        ("stock: on one processor requests/s collapse: 8 CPU-bound threads", 10 / 12_000),
        ("priority: times stock's requests/s at 5 ms", 200),
        ("priority: CPU-bound threads get the GIL", 0.9),
    ],
)
def test_statements_compute_their_number(beginning: str, value: float) -> None:
    assert one(verdicts(as_published), beginning).value == pytest.approx(value, rel=0.03)


def changed(factor: float, **wanted: Any) -> Callable[[Parameters], float]:
    """As published, but for the rows that have these parameters."""

    def rate(each: Parameters) -> float:
        there = wanted.items() <= each.items()
        return as_published(each) * (factor if there else 1)

    return rate


@pytest.mark.parametrize(
    ("beginning", "rate"),
    [
        ("stock: requests/s are proportional to 1/interval", lambda _: 10_000.0),
        ("stock: requests/s halve as CPU-bound threads double", lambda _: 10_000.0),
        ("stock, a processor for the server alone: requests/s are", lambda _: 10_000.0),
        ("stock, a processor for the server alone: requests/s halve", lambda _: 10_000.0),
        (
            "stock: without CPU-bound threads the interval changes nothing",
            changed(0.5, cpu_threads=0, switch_interval=0.1),
        ),
        ("stock: from 0.1 ms to 0.01 ms requests/s grow by less", changed(5, switch_interval=1e-5)),
        ("stock: from 0.01 ms to 0.001 ms they no longer", changed(5, switch_interval=1e-6)),
        (
            "stock: 1 CPU-bound thread costs an echo server",
            changed(10, policy=STOCK, cpu_threads=1, mode="threads"),
        ),
        ("1 CPU-bound process instead costs little", changed(0.1, mode="processes")),
        ("the number of CPU-bound processes barely", changed(0.1, mode="processes", cpu_threads=4)),
        ("CPU-bound sub-interpreters with GILs of their own", changed(0.1, mode="interpreters")),
        ("CPU-bound threads without a GIL", changed(0.1, mode="free-threaded")),
        ("stock: server and client on one processor do better", changed(0.01, cores="one")),
        ("stock: on one processor requests/s collapse", lambda _: 10_000.0),
        ("stock: a processor for the server alone", changed(9, cores="client elsewhere")),
        ("priority: times stock's requests/s at 5 ms", changed(0.1, policy="priority")),
        ("deadline: as many requests/s as beside processes", changed(0.1, policy="deadline")),
        (
            "deadline: costs nothing without CPU-bound threads",
            changed(0.5, policy="deadline", cpu_threads=0),
        ),
        (
            "deadline: requests/s do not depend on the interval",
            changed(0.2, policy="deadline", switch_interval=0.1),
        ),
    ],
)
def test_statements_differ_where_figures_do(
    beginning: str, rate: Callable[[Parameters], float]
) -> None:
    assert not one(verdicts(rate), beginning).agrees


def test_nothing_is_claimed_of_cpythons_own_rule_but_that_it_costs_nothing() -> None:
    choice = replace(FULL, policies=(STOCK, "interval"))
    found = ECHO.statements(made(as_published, choice))
    assert [each.text for each in found if "interval:" in each.text] == [
        "interval: costs nothing without CPU-bound threads: requests/s of stock's"
    ]


def test_a_policy_that_starves_who_computes_is_found_out() -> None:
    results = made(as_published)
    starved = results.find(**row(4, policy="priority"))
    assert starved is not None
    starved.figures["work_share"] = [0.3] * 3
    found = {each.text: each for each in ECHO.statements(results)}
    assert not one(found, "priority: CPU-bound threads get the GIL").agrees
    assert one(found, "deadline: CPU-bound threads get the GIL").agrees


def test_no_request_at_all_is_a_result() -> None:
    """Nothing is divided by it, and no logarithm is taken of it."""
    said = [each.text for each in ECHO.statements(made(lambda _: 0.0))]
    assert [text for text in said if "CPU-bound threads get the GIL" not in text] == []
    first = ECHO.tables(made(lambda _: 0.0))[0]
    assert first.rows[0][1].value == 0


def test_nothing_measured_says_nothing() -> None:
    rows = [Result(each.parameters) for each in ECHO.rows(FULL)]
    results = Results("echo", ECHO.unit, rows, {})
    assert ECHO.statements(results) == []
    assert all(
        cell.value is None for table in ECHO.tables(results) for row in table.rows for cell in row
    )
    empty = Results("echo", ECHO.unit, [], {})
    assert (ECHO.tables(empty), ECHO.charts(empty), ECHO.statements(empty)) == ([], [], [])


def test_tables_hold_every_measured_row_and_the_published_beside() -> None:
    results = made(as_published)
    titles = [table.title for table in ECHO.tables(results)]
    assert titles == [
        "stock: requests/s, by switch interval and CPU-bound threads",
        "stock, a processor for the server alone: requests/s, by switch interval and CPU-bound "
        "threads",
        "priority: requests/s, by switch interval and CPU-bound threads",
        "deadline: requests/s, by switch interval and CPU-bound threads",
        "requests at 5 ms, by policy",
        "stock: requests/s, by where the CPU-bound work runs",
        "stock: CPU work, by where the CPU-bound work runs",
        "requests/s, by the processors that server and client may use",
    ]
    stock, _, priority, *_ = ECHO.tables(results)
    assert [line[0].text for line in stock.rows] == [
        "100 ms",
        "10 ms",
        "5 ms",
        "1 ms",
        "100 µs",
        "10 µs",
        "1 µs",
    ]
    assert [line[0].text for line in priority.rows] == ["100 ms", "5 ms", "100 µs"]
    for table in (stock, priority):
        assert table.headings == [
            "switch interval",
            *("0 threads", "1 thread", "2 threads", "4 threads", "8 threads"),
        ]
    beside_two = stock.headings.index("2 threads")
    assert [line[beside_two].published for line in stock.rows] == [2, 30, 50, 280, 1700, 5500, 4500]


def test_the_chart_has_a_line_for_each_number_of_threads() -> None:
    stock, priority, *_, by_threads = ECHO.charts(made(as_published))
    assert [series.name[0] for series in priority.series] == ["0", "1", "2", "4", "8"]
    assert (stock.log_x, stock.log_y) == (True, True)
    assert [series.name for series in stock.series[:4]] == [
        "0 threads",
        "1 thread",
        "2 threads",
        "4 threads",
    ]
    assert [len(series.published) for series in stock.series[:4]] == [7, 7, 7, 7]
    assert stock.series[1].points[0] == (0.000001, 10_000, 10_000, 10_000)
    assert [series.name for series in by_threads.series] == [*POLICIES, "processes"]


# Real values

measures = pytest.mark.slow("measures an echo server")


def check_value(choice: Choice, **wanted: Any) -> dict[str, float]:
    (found,) = [row for row in ECHO.rows(choice) if wanted.items() <= row.parameters.items()]
    assert found.left_out == ""
    measured = measure(found, choice)
    figures = dict(measured.figures)
    assert measured.value > 0
    assert 0 < figures["p50_s"] <= figures["p99_s"] <= figures["max_s"]
    assert ("work_share" in figures) == bool(found.parameters["cpu_threads"])
    assert figures.get("work_share", 1) >= 0
    return figures


def measure(found: Row, choice: Choice) -> Measured:
    """A machine that stands still for the whole of so short a value gets another try."""
    for _ in range(2):
        try:
            return ECHO.measure(found, choice, {})
        except ProgramError as error:
            if LATE not in str(error):
                raise
    return ECHO.measure(found, choice, {})


def chosen(*threads: int, policies: tuple[str, ...] = (STOCK,)) -> Choice:
    free = THIS if THIS.free_threading else None
    return Choice(THIS, free, policies, (0.005,), threads, seconds=SECONDS)


@measures
@pytest.mark.parametrize("cpu_threads", [0, 2])
def test_stock_is_measured(cpu_threads: int) -> None:
    figures = check_value(chosen(cpu_threads), mode="threads", cores="free")
    assert "left_share" not in figures


@measures
@pytest.mark.parametrize(
    "mode",
    ["processes", "interpreters", pytest.param("free-threaded", marks=pytest.mark.free_threading)],
)
def test_the_work_runs_elsewhere(mode: str) -> None:
    choice = chosen(1)
    if reason := {
        "interpreters": choice.no_own_gils,
        "free-threaded": choice.no_free_threading,
    }.get(mode):
        pytest.skip(reason)
    check_value(choice, mode=mode)


@pytest.mark.parametrize("policy", [pytest.param("priority", marks=measures), "deadline"])
def test_a_policy_tells_how_the_gil_divides(policy: str) -> None:
    figures = check_value(
        chosen(1, policies=(policy,)), policy=policy, mode="threads", cores="free"
    )
    shares = [figures[name] for name in ("io_held_share", "handoff_share", "left_share")]
    assert sum(shares) == pytest.approx(1)
    assert all(0 <= share <= 1 for share in shares)


@measures
@pytest.mark.parametrize("cores", ["client elsewhere", "one"])
def test_processors_are_kept_to(cores: str) -> None:
    usable = os.sched_getaffinity(0)
    if cores == "client elsewhere" and len(usable) < 2:
        pytest.skip("this process may use one processor")
    check_value(chosen(1), mode="threads", cores=cores)
    assert os.sched_getaffinity(0) == usable


def test_processors_are_taken_from_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 4, 7, 9})
    assert echo_value.processors("free") == ({3, 4, 7, 9}, {3, 4, 7, 9})
    assert echo_value.processors("client elsewhere") == ({3}, {9})
    assert echo_value.processors("one") == ({3}, {3})


def test_all_threads_of_a_program_stay_where_it_was_started() -> None:
    usable = os.sched_getaffinity(0)
    only = {max(usable)}
    with started_on(only):
        serving = program(
            FULL.setting()._replace(python=sys.executable), "echo_server", "0", "0.005"
        )
        with serving as server:
            server.answer()
            tasks = [int(task) for task in os.listdir(f"/proc/{server.process.pid}/task")]
            affinities = [os.sched_getaffinity(task) for task in tasks]
    assert len(affinities) > 1
    assert affinities == [only] * len(affinities)
    assert os.sched_getaffinity(0) == usable


def test_threads_that_start_too_late_bring_no_value() -> None:
    with program(chosen(1).setting(), "computation", "1") as computing:
        computing.answer()
        computing.measure(Window(1, 2))
        with pytest.raises(ProgramError, match=LATE):
            computing.answer()


UNANSWERED = """import json, socket, struct, time
import echo_client, window
ours, theirs = socket.socketpair()
ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
theirs.send(b"xx")
now_ns = time.monotonic_ns()
found = echo_client.ask(ours, window.Window(now_ns, now_ns + 10**10))
print(json.dumps([now_ns, *found], default=list))
"""


def test_a_client_that_gets_no_answer_says_so() -> None:
    found = execute([sys.executable, "-c", UNANSWERED], env=environment(PYTHONPATH=str(PROGRAMS)))
    now_ns, first_sent_ns, latencies_ns, answered = json.loads(found.stdout)
    assert first_sent_ns >= now_ns
    assert len(latencies_ns) == 3
    assert latencies_ns[2] >= 50_000_000
    assert answered is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("echo", "--mode", "fibers"), "argument --mode: invalid choice: 'fibers'"),
        (("countdown", "--mode", "processes"), "--mode: countdown has none; it has --policy, "),
    ],
)
def test_a_mode_that_is_none_is_refused(words: tuple[str, ...], said: str) -> None:
    result = run_main("bench", *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"headway bench: {said}")


@pytest.mark.slow("runs an experiment")
def test_the_command_measures_and_keeps_what_it_shows(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    words = ("echo", "--quick", "--values", "1", "--seconds", "0.3", "--policy", STOCK)
    result = run_main("bench", *words, "--mode", "threads", "--json", file)
    assert result.returncode == 0, result.stderr
    assert "stock: requests/s, by switch interval and CPU-bound threads" in result.stdout
    (experiment,) = json.loads(file.read_text())["experiments"]
    assert [each["parameters"] for each in experiment["rows"]] == [
        row(0),
        row(1),
        row(2),
        row(1, 0.0001),
    ]
    assert all(len(each["values"]) == 1 for each in experiment["rows"])
    assert len(experiment["statements"]) == 3
