"""The experiment `wsgi`: its rows, what it says of results, and values of real servers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launch import run_main

from headway.errors import CommandError
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway.programs import interpreters
from headway.programs.process_tree import tree
from headway.programs.processes import ProgramError, Window
from headway.recorder.records import histogram
from headway_lab.experiment import Choice, Measured, Row
from headway_lab.measured.wsgi import mod_wsgi, reports
from headway_lab.measured.wsgi.experiment import Wsgi
from headway_lab.measured.wsgi.load import Look, time_between
from headway_lab.measured.wsgi.reports import bumps, samples, with_immediate
from headway_lab.measured.wsgi.rows import FREE_THREADED, GIL
from headway_lab.measured.wsgi.server import Shape
from headway_lab.setting import STOCK as PLAIN
from headway_lab.setting import Setting, program

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = Path(os.environ.get("HEADWAY_TELEMETRY_CLIENTS", ROOT / ".venvs" / "telemetry-clients"))
CLIENTS_PYTHON = CLIENTS / "bin" / "python"
NO_MOD_WSGI = (
    mod_wsgi.missing(str(CLIENTS_PYTHON), False)
    if (CLIENTS / "bin" / "mod_wsgi-express").exists()
    else "there is no mod_wsgi: scripts/telemetry-clients builds PyPI's"
)
WITH_GIL = interpreters.this()._replace(free_threading=False, version="3.13.0")
CHOICE = Choice(WITH_GIL, policies=(STOCK, "priority", "deadline"))
EXPERIMENT = Wsgi()


def changed(**changes: Any) -> Choice:
    return Choice(**{**vars(CHOICE), **changes})


# Rows.


def gil_rows(choice: Choice) -> list[tuple[Any, ...]]:
    names = ("workload", "processes", "threads", "policy", "switch_interval")
    return [
        tuple(row.parameters[name] for name in names)
        for row in EXPERIMENT.rows(choice)
        if row.parameters["mode"] == GIL
    ]


def test_rows_are_the_published_ones_and_those_of_the_policies() -> None:
    of_fixed = [row[1:] for row in gil_rows(CHOICE) if row[0] == "fixed"]
    unscheduled = [(5e-3, "interval"), (2e-3, "interval"), (1e-4, "interval")]
    scheduled = [(5e-3, "priority"), (5e-3, "deadline")]
    assert of_fixed == [
        # A thread that has a GIL to itself heeds neither interval nor policy.
        (10, 1, "interval", 5e-3),
        *((2, 5, policy, interval_s) for interval_s, policy in unscheduled + scheduled),
        *((1, 10, policy, interval_s) for interval_s, policy in unscheduled + scheduled),
    ]
    assert [row[1:] for row in gil_rows(CHOICE) if row[0] == "deadline"] == of_fixed


def test_stock_is_the_policy_interval_and_not_measured_twice() -> None:
    rows = gil_rows(changed(policies=(STOCK, "interval"), shapes=((2, 5),)))
    assert {row[3] for row in rows} == {"interval"}
    assert len(rows) == 2 * 3


def test_intervals_that_were_named_are_those_of_all_policies() -> None:
    choice = changed(shapes=((2, 3),), switch_intervals_s=(0.01, 0.001), workloads=("fixed",))
    assert {row[3:] for row in gil_rows(choice)} == {
        (policy, interval_s)
        for policy in ("interval", "priority", "deadline")
        for interval_s in (0.01, 0.001)
    }


def test_quick_rows_are_few_and_of_both_workloads() -> None:
    rows = gil_rows(changed(quick=True))
    assert len(rows) <= 8
    assert {row[0] for row in rows} == {"deadline", "fixed"}
    assert {row[4] for row in rows} == {5e-3, 1e-4}


def test_rows_without_a_gil_are_left_out_by_name_where_there_is_no_such_build() -> None:
    rows = [row for row in EXPERIMENT.rows(CHOICE) if row.parameters["mode"] == FREE_THREADED]
    assert [(row.parameters["processes"], row.parameters["threads"]) for row in rows] == [
        (2, 5),
        (1, 10),
    ] * 2
    assert all("3.13.0 is no free-threaded build" in row.left_out for row in rows)


def test_rows_without_a_gil_run_the_build_that_was_named_for_them() -> None:
    there = WITH_GIL._replace(free_threading=True, path="/opt/python3.13t")
    rows = EXPERIMENT.rows(changed(free_threaded=there))
    free = [row for row in rows if row.parameters["mode"] == FREE_THREADED]
    assert {row.setting.python for row in free} == {"/opt/python3.13t"}
    assert not any(row.left_out for row in free)
    plain = EXPERIMENT.rows(changed(free_threaded=there._replace(headway="")))
    assert {row.left_out for row in plain} == {"", "/opt/python3.13t has no Headway of its own"}


def test_an_interpreter_without_headway_leaves_all_rows_out() -> None:
    bare = WITH_GIL._replace(headway="", path="/usr/bin/bare")
    rows = EXPERIMENT.rows(changed(interpreter=bare, policies=(STOCK,)))
    assert all(row.left_out for row in rows)


def test_mod_wsgi_that_is_missing_is_refused_with_how_to_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    bare = WITH_GIL._replace(path=str(tmp_path / "python"))
    with pytest.raises(CommandError, match=r"^--server mod_wsgi: .*install") as said:
        EXPERIMENT.rows(changed(server="mod_wsgi", interpreter=bare))
    assert said.value.exit_code == 2
    assert "\n" not in str(said.value)


def test_mod_wsgi_has_no_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mod_wsgi, "missing", lambda *_: "")
    rows = EXPERIMENT.rows(changed(server="mod_wsgi"))
    assert {row.parameters["policy"] for row in rows} == {STOCK}
    with pytest.raises(CommandError, match="--policy deadline: mod_wsgi has none") as said:
        EXPERIMENT.rows(changed(server="mod_wsgi", policies=("deadline",)))
    assert said.value.exit_code == 2


def test_an_option_that_would_change_nothing_is_refused() -> None:
    refused = run_main("bench", "wsgi", "--threads", "3")
    assert refused.returncode == 2
    assert refused.stderr.startswith("headway bench: --threads: wsgi has none")
    assert refused.stderr.count("\n") == 1


# Statements.


def result_of(
    rpm: float,
    shape: tuple[int, int] = (2, 5),
    workload: str = "deadline",
    policy: str = "interval",
    interval_s: float = 0.005,
    mode: str = GIL,
    server: str = "headway",
    **figures: float,
) -> Result:
    parameters = {
        "server": server,
        "workload": workload,
        "processes": shape[0],
        "threads": shape[1],
        "mode": mode,
        "policy": policy,
        "switch_interval": interval_s,
    }
    result = Result(parameters, EXPERIMENT.published(parameters))
    result.values = [rpm] * 5
    result.figures = {name: [value] * 5 for name, value in figures.items()}
    return result


def say(*rows: Result, cpus: int = 2) -> list[Statement]:
    return EXPERIMENT.statements(
        Results("wsgi", EXPERIMENT.unit, list(rows), {"fixed_loops": 1, "cpus": cpus})
    )


def verdict(words: str, *rows: Result, cpus: int = 2) -> bool:
    """Of the only statement with these words."""
    (found,) = [each for each in say(*rows, cpus=cpus) if words in each.text]
    return found.agrees


def test_nothing_is_said_without_values() -> None:
    empty = result_of(0)
    empty.values = []
    assert say() == []
    assert say(empty) == []


@pytest.mark.parametrize(
    ("workload", "small_rpm", "agrees"),
    [
        ("deadline", 121, True),
        ("deadline", 37, False),
        ("fixed", 24, True),
        ("fixed", 37, True),
        ("fixed", 50, False),
    ],
)
@pytest.mark.parametrize(("server", "policy"), [("headway", "interval"), ("mod_wsgi", "stock")])
def test_a_small_interval_gains_with_deadline_alone(
    server: str, policy: str, workload: str, small_rpm: float, agrees: bool
) -> None:
    common: Any = {"workload": workload, "policy": policy, "server": server}
    common |= {"gil_wait_p50_s": 0.005, "gil_wait_p95_s": 0.013}
    usual = result_of(37, **common)
    small = result_of(small_rpm, interval_s=0.0001, **common)
    assert verdict(f"{server}, {workload}: 2 x 5 with a switch interval", usual, small) is agrees


@pytest.mark.parametrize(
    ("words", "figures", "agrees"),
    [
        ("the median wait", {"gil_wait_p50_s": 0.0052}, True),
        ("the median wait", {"gil_wait_p50_s": 0.0002}, False),
        (
            "of takes that wait",
            {"gil_wait_p50_s": 0.0002, "contended_gil_wait_p50_s": 0.005},
            True,
        ),
        ("the 95th percentile of the waits in", {"gil_wait_p95_s": 0.013}, True),
        ("the 95th percentile of the waits in", {"gil_wait_p95_s": 0.05}, False),
        ("waits bunch at multiples", {"bumps": 1.4}, True),
        ("waits bunch at multiples", {"bumps": 0.9}, False),
    ],
)
def test_waits_are_told_in_intervals(words: str, figures: dict[str, float], agrees: bool) -> None:
    all_figures = {"gil_wait_p50_s": 0.005, "gil_wait_p95_s": 0.013, **figures}
    assert verdict(words, result_of(37, **all_figures)) is agrees


@pytest.mark.parametrize(("small_p95_s", "agrees"), [(0.0012, True), (0.012, False)])
def test_a_small_interval_shortens_waits(small_p95_s: float, agrees: bool) -> None:
    usual = result_of(37, gil_wait_p50_s=0.005, gil_wait_p95_s=0.013)
    small = result_of(121, interval_s=0.0001, gil_wait_p50_s=0.0005, gil_wait_p95_s=small_p95_s)
    assert verdict("of the waits at 0.1 ms", usual, small) is agrees


def test_waits_of_nobody_are_no_ratio() -> None:
    usual = result_of(37, gil_wait_p50_s=0.0, gil_wait_p95_s=0.0)
    small = result_of(121, interval_s=0.0001, gil_wait_p50_s=0.0, gil_wait_p95_s=0.0)
    said = [each.text for each in say(usual, small)]
    assert not [text for text in said if "of the waits at 0.1 ms" in text]
    assert [text for text in said if "the 95th percentile of the waits in" in text]


@pytest.mark.parametrize(("usual_rpm", "agrees"), [(37, True), (134, False)])
def test_threads_that_share_gils_fall_behind_processes(usual_rpm: float, agrees: bool) -> None:
    usual = result_of(usual_rpm, gil_wait_p50_s=0.005, gil_wait_p95_s=0.013)
    assert verdict("falls behind 10 x 1", result_of(134, (10, 1)), usual) is agrees


@pytest.mark.parametrize(
    ("free_rpm", "free_work_s", "agrees"),
    [(134, 0.003, True), (67, 0.006, True), (67, 0.003, False), (134, 0.006, False)],
)
def test_builds_are_compared_with_the_ratio_of_their_speeds_taken_out(
    free_rpm: float, free_work_s: float, agrees: bool
) -> None:
    base = result_of(134, (10, 1), "fixed", work_s=0.003)
    free = result_of(free_rpm, (1, 10), "fixed", STOCK, mode=FREE_THREADED, work_s=free_work_s)
    assert verdict("1 x 10 free-threaded equals 10 x 1", base, free) is agrees


@pytest.mark.parametrize(("cores", "rss_mb", "agrees"), [(6.65, 31, True), (0.9, 180, False)])
def test_one_process_without_a_gil_uses_cores_and_saves_memory(
    cores: float, rss_mb: float, agrees: bool
) -> None:
    base = result_of(134, (10, 1), rss_bytes=200e6)
    free = result_of(
        134,
        (1, 10),
        policy=STOCK,
        mode=FREE_THREADED,
        cpu_per_process=cores,
        rss_bytes=rss_mb * 1e6,
    )
    assert verdict("uses several cores", base, free) is agrees
    assert verdict("needs less memory", base, free) is agrees


def test_nothing_is_said_of_a_time_that_nobody_knows() -> None:
    """The processors' is unknown where the machine was too busy to look at the window's ends."""
    base = result_of(134, (10, 1), rss_bytes=200e6)
    free = result_of(134, (1, 10), policy=STOCK, mode=FREE_THREADED, rss_bytes=31e6)
    said = [each.text for each in say(base, free)]
    assert not [text for text in said if "uses several cores" in text]
    assert [text for text in said if "needs less memory" in text]


@pytest.mark.parametrize(("policy_rpm", "agrees"), [(130, True), (100, False)])
def test_policies_are_held_against_the_interval_and_against_processes(
    policy_rpm: float, agrees: bool
) -> None:
    rows = (
        result_of(134, (10, 1), "fixed"),
        result_of(134, (2, 5), "fixed"),
        result_of(policy_rpm, (2, 5), "fixed", "deadline"),
    )
    assert verdict("2 x 5 under deadline serves what 2 x 5 under interval", *rows) is agrees
    assert verdict("2 x 5 under deadline serves what 10 x 1", *rows) is agrees
    # Of more cores, two GILs cannot have more than two.
    assert not [each for each in say(*rows, cpus=8) if "serves what 10 x 1" in each.text]


# Tables and charts.


def test_published_figures_stand_beside_the_reading_that_they_are_of() -> None:
    assert result_of(1, (2, 5)).published == 37_000
    assert result_of(1, (2, 5), interval_s=0.0001).published == 121_000
    assert result_of(1, (1, 10), policy=STOCK, mode=FREE_THREADED).published == 134_000
    assert result_of(1, (2, 5), "fixed").published is None
    assert result_of(1, (2, 5), policy="deadline").published is None
    assert result_of(1, (2, 4)).published is None


def test_a_table_has_each_configuration_with_its_share_of_10_x_1() -> None:
    rows = [
        result_of(100, (10, 1), response_mean_s=0.004),
        result_of(25, (2, 5), response_mean_s=0.016),
        result_of(80, (2, 5), policy="deadline"),
    ]
    left_out = Result({**rows[0].parameters, "mode": FREE_THREADED}, None, "no such build")
    (table,) = EXPERIMENT.tables(Results("wsgi", EXPERIMENT.unit, [*rows, left_out], {}))
    column = list(table.headings).index
    assert [line[0].text for line in table.rows] == [
        "10 x 1, 5 ms",
        "2 x 5, 5 ms",
        "2 x 5, 5 ms, deadline",
    ]
    assert [line[column("of 10 x 1")].value for line in table.rows] == [1, 0.25, 0.8]
    assert table.rows[1][column("of 10 x 1")].published == pytest.approx(37 / 134)
    response = table.rows[1][column("response ms")]
    assert (response.value, response.published) == (16, 16)
    assert len({len(line) for line in table.rows} | {len(table.headings)}) == 1


def test_shares_are_named_for_the_shape_that_they_are_of() -> None:
    """The published figure is a share of 10 x 1, and stands beside no other row."""
    rows = [
        result_of(100, (4, 1)),
        result_of(25, (2, 5)),
        result_of(75, (2, 5), interval_s=0.0001),
    ]
    found = Results("wsgi", EXPERIMENT.unit, rows, {})
    (table,) = EXPERIMENT.tables(found)
    share = table.rows[1][list(table.headings).index("of 4 x 1")]
    assert (share.value, share.published) == (0.25, None)
    chart, *_ = EXPERIMENT.charts(found)
    assert chart.y_label == "share of 4 x 1's requests"
    assert [series.published for series in chart.series] == [[]]


def test_charts_go_by_the_switch_interval() -> None:
    waits = {"gil_wait_p50_s": 0.005, "gil_wait_p95_s": 0.013, "gil_wait_p99_s": 0.02}
    rows = [
        result_of(100, (10, 1)),
        result_of(25, (2, 5), **waits),
        result_of(75, (2, 5), interval_s=0.0001, **waits),
    ]
    share, found = EXPERIMENT.charts(Results("wsgi", EXPERIMENT.unit, rows, {}))
    assert [point[:2] for point in share.series[0].points] == [(0.0001, 0.75), (0.005, 0.25)]
    assert share.series[0].published[1] == (0.005, pytest.approx(37 / 134))
    assert [series.name for series in found.series] == ["p50", "p95", "p99"]
    assert found.series[1].points[1][:2] == (0.005, 0.013)
    assert found.series[1].published == [(0.0001, 0.0012), (0.005, 0.013)]


def test_a_chart_shows_single_waits_beside_multiples_of_the_interval() -> None:
    row = result_of(25, (2, 5), contended_gil_wait_p50_s=0.005)
    row.samples_s = [0.0101] * 60 + [0.0001] * 30 + [1.0] * 10
    chart = EXPERIMENT.charts(Results("wsgi", EXPERIMENT.unit, [row], {}))[-1]
    assert chart.multiples_of == 0.005
    shares = {round(x / 0.005 - 1 / 16, 3): y for x, y, *_ in chart.series[0].points}
    assert len(shares) == 40
    assert shares[0] == pytest.approx(0.3)
    assert shares[2] + shares[1.875] == pytest.approx(0.6)
    assert sum(shares.values()) == pytest.approx(0.9)


# Distributions.


def waits_of(*times_s: float) -> dict[str, Any]:
    ordered = sorted(times_s)
    return {
        "count": len(ordered),
        "sum": sum(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        "buckets": [[time_s * 1.02, 1] for time_s in ordered],
    }


def test_bumps_at_multiples_of_the_interval_are_found() -> None:
    evenly = [0.0001 * k for k in range(20, 200)]
    at_multiples = [0.005 * k for k in (1, 2, 3) for _ in range(30)]
    between = [0.005 * k for k in (0.5, 1.5, 2.5, 3.5) for _ in range(30)]
    assert bumps(waits_of(*evenly), 0.005)["bumps"] == pytest.approx(1, abs=0.1)
    assert bumps(waits_of(*evenly, *at_multiples), 0.005)["bumps"] > 2
    assert bumps(waits_of(*evenly, *between), 0.005)["bumps"] < 0.5
    assert bumps(None, 0.005) == {}


def test_takes_that_did_not_wait_count_as_such() -> None:
    waits = waits_of(*(0.001 * k for k in range(1, 11)))
    found = with_immediate(waits, 20)
    assert found is not None
    assert (found["count"], found["p50"]) == (20, 0)
    assert found["p95"] == pytest.approx(0.009, rel=0.05)
    assert with_immediate(None, 20) is None


def test_rates_are_those_of_the_time_that_the_reports_cover(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two processes reported of half a second each, out of a window of two and a half."""
    waits = histogram.total([waits_of(0.001), waits_of(0.002)])
    record = {
        "process_seconds": 1.0,
        "request_time_histogram": waits,
        "application_time_histogram": waits,
        "gils": [{"gil_wall": 1.0, "gil_takes": 500, "gil_forced_drops": 100}],
    }
    monkeypatch.setattr(reports, "merged", lambda *_: record)
    worker = SimpleNamespace(identity={"switch_interval": 0.005})
    received = object.__new__(reports.Reports)
    live = SimpleNamespace(ticks=lambda *_: [])
    received._recorder = SimpleNamespace(known=lambda: [worker] * 2, live=live)  # type: ignore[assignment]
    shape = Shape("headway", 2, 5, False, Setting("interval", 0.005))
    found, _ = received.figures(shape, Window(0, 2_500_000_000))
    assert (found["takes_per_s"], found["forced_drops_per_s"]) == (1_000, 200)


@pytest.mark.parametrize(
    ("first_s", "last_s", "between_s"),
    [
        ((10.0, 10.02), (12.0, 12.04), 2.01),
        # Late for the first look, within it, or for the last one.
        ((11.0, 11.02), (12.0, 12.02), None),
        ((10.0, 11.0), (12.0, 12.02), None),
        ((10.0, 10.02), (13.0, 13.02), None),
        ((10.0, 10.02), (12.0, 13.0), None),
    ],
)
def test_a_processors_time_is_that_of_looks_in_time(
    first_s: tuple[float, float], last_s: tuple[float, float], between_s: float | None
) -> None:
    found = time_between(Look(*first_s, {}), Look(*last_s, {}), 2.0)
    assert found == (between_s and pytest.approx(between_s))


def test_samples_have_the_shape_of_the_distribution() -> None:
    waits = waits_of(*(0.001 * k for k in range(1, 1001)))
    found = samples(waits, 100)
    assert len(found) == 100
    assert found == sorted(found)
    assert found[49] == pytest.approx(0.5, rel=0.05)
    assert found[-1] <= 1.0
    assert samples(None, 100) == []


# Programs.


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A server that answers each connection's first request with the next of these, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def loaded(port: int, connections: int = 1, seconds: float = 1.0) -> dict[str, Any]:
    with program(PLAIN, "http_load", str(port), "/", str(connections)) as clients:
        clients.answer()
        clients.measure(Window.after(0.0, seconds))
        return clients.answer()


def test_the_load_counts_what_fails() -> None:
    right = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    wrong = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    with answering(right, wrong, b"", right) as port:
        found = loaded(port)
    # Two requests succeed, the first of them perhaps before the window.
    assert len(found["latencies_s"]) <= 2
    assert found["errors"] >= 3


def test_a_program_says_how_long_the_work_takes_one_thread() -> None:
    def seconds(loops: int) -> float:
        with program(PLAIN, "wsgi_page", str(loops)) as page:
            found: float = page.answer()["seconds"]
        return found

    assert 0 < seconds(1_000) < seconds(40_000)


# Real servers.


def values_of(choice: Choice) -> list[tuple[Row, Measured]]:
    rows = [row for row in EXPERIMENT.rows(choice) if not row.left_out]
    calibration = EXPERIMENT.calibrate(choice)
    assert calibration["fixed_loops"] > 0
    return [(row, EXPERIMENT.measure(row, choice, calibration)) for row in rows]


def check_value(row: Row, found: Measured) -> None:
    figures = found.figures
    assert found.value > 0
    assert figures["errors"] == 0
    # 1 ms of waiting at the least; `deadline` also takes its 3 ms.
    least_s = 0.004 if row.parameters["workload"] == "deadline" else 0.001
    assert least_s <= figures["application_p50_s"] <= figures["application_p99_s"]
    assert figures["response_mean_s"] >= figures["application_mean_s"]
    # Nobody knows where the machine was too busy to look in time.
    if "cpu_total" in figures:
        of_workers = figures["cpu_per_process"] * row.parameters["processes"]
        assert figures["cpu_total"] >= of_workers - 0.001
    assert figures["rss_bytes"] > figures["rss_per_process"] > 1_000_000
    assert figures["gil_wait_p50_s"] <= figures["gil_wait_p95_s"] <= figures["gil_wait_p99_s"]
    assert found.samples_s == sorted(found.samples_s)


@pytest.mark.slow("runs an experiment")
def test_headway_serves_both_workloads_and_leaves_nothing_behind() -> None:
    choice = Choice(
        interpreters.this(),
        policies=("deadline",),
        shapes=((2, 2),),
        switch_intervals_s=(0.002,),
        seconds=0.6,
    )
    before = set(tree(os.getpid()))
    rows = [row for row in EXPERIMENT.rows(choice) if row.parameters["mode"] == GIL]
    calibration = EXPERIMENT.calibrate(choice)
    for row in rows:
        found = EXPERIMENT.measure(row, choice, calibration)
        check_value(row, found)
        assert found.figures["request_gil_wait_p95_s"] >= 0
        assert found.samples_s
    assert [row.parameters["workload"] for row in rows] == ["deadline", "fixed"]
    assert set(tree(os.getpid())) == before


@pytest.mark.free_threading
@pytest.mark.slow("runs an experiment")
@pytest.mark.skipif(not interpreters.this().free_threading, reason="the interpreter has a GIL")
def test_headway_serves_without_a_gil() -> None:
    this = interpreters.this()
    choice = Choice(this, this, shapes=((1, 2),), workloads=("fixed",), seconds=0.6)
    (row,) = [each for each in EXPERIMENT.rows(choice) if each.parameters["mode"] != GIL]
    found = EXPERIMENT.measure(row, choice, EXPERIMENT.calibrate(choice))
    assert found.value > 0
    assert found.figures["work_s"] > 0
    assert not found.samples_s


def test_a_server_that_cannot_start_is_told_with_what_it_said() -> None:
    choice = Choice(interpreters.this(), policies=("interval",), shapes=((1, 2),), seconds=0.3)
    row = EXPERIMENT.rows(choice)[0]
    wrong = Row(row.parameters, row.setting._replace(policy="no-such-policy"))
    with pytest.raises(ProgramError, match=r"headway 1x2 no-such-policy ended; .*--policy"):
        EXPERIMENT.measure(wrong, choice, {"fixed_loops": 1_000})


@pytest.mark.skipif(bool(NO_MOD_WSGI), reason=NO_MOD_WSGI or "it is here")
@pytest.mark.slow("starts Apache")
def test_mod_wsgi_serves_in_an_apache_of_its_own() -> None:
    choice = Choice(
        interpreters.examine(str(CLIENTS_PYTHON)),
        server="mod_wsgi",
        shapes=((2, 2),),
        switch_intervals_s=(0.002,),
        workloads=("deadline",),
        seconds=1.2,
    )
    before = set(tree(os.getpid()))
    ((row, found),) = values_of(choice)
    check_value(row, found)
    assert "bumps" not in found.figures
    assert set(tree(os.getpid())) == before


@pytest.mark.slow("starts servers")
def test_an_interruption_ends_the_server_and_shows_what_there_is() -> None:
    words = [sys.executable, "-m", "headway", "bench", "wsgi", "--policy", "stock"]
    words += ["--shape", "2x2", "--switch-interval", "0.005", "--seconds", "60", "--values", "1"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as bench:
        try:
            servers = wait_for_servers(bench)
            bench.send_signal(2)
            said, complaints = bench.communicate(timeout=30)
        finally:
            bench.kill()
    assert bench.returncode == 130, complaints
    assert "2 x 2, 5 ms" in said
    assert "Interrupted" in complaints
    assert not [pid for pid in servers if command_line(pid)]


def wait_for_servers(bench: subprocess.Popen[str]) -> list[int]:
    """All of the server's processes and the load's, once there is a load."""
    end_s = time.monotonic() + 30
    while True:
        found = [pid for pid in tree(bench.pid) if pid != bench.pid]
        if any("http_load" in command_line(pid) for pid in found):
            return found
        assert bench.poll() is None
        assert time.monotonic() < end_s
        time.sleep(0.05)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
