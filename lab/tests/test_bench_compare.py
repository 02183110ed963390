"""`headway bench-compare`: what it calls faster and slower, how often it errs, what it refuses."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from launch import Result, run_main

from headway.output import results as bench_results
from headway_lab import comparison
from headway_lab.comparison import Comparison, compare
from headway_lab.results_file import Kept, KeptExperiment

LOW = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7]
HIGH = [value * 2 for value in LOW]


def row(values: list[float], left_out: str = "", **parameters: Any) -> bench_results.Result:
    made = bench_results.Result(parameters, None, left_out)
    made.values = values
    return made


def kept(
    *rows: bench_results.Result,
    name: str = "made",
    unit: str = "s",
    higher_is_better: bool | None = False,
    **metadata: Any,
) -> Kept:
    results = bench_results.Results(name, unit, list(rows), {})
    return Kept(metadata, [KeptExperiment(results, higher_is_better, [])])


def verdict(a: list[float], b: list[float], unit: str, higher_is_better: bool | None) -> str:
    files = [
        kept(row(values, policy="stock"), unit=unit, higher_is_better=higher_is_better)
        for values in (a, b)
    ]
    (found,) = compare(*files).differences
    return found.verdict


@pytest.mark.parametrize(
    ("unit", "higher_is_better", "words"),
    [
        ("s", False, ("slower", "faster")),
        ("ns per increment", False, ("slower", "faster")),
        ("requests/s", True, ("faster", "slower")),
        ("lost updates", False, ("worse", "better")),
        ("share", True, ("better", "worse")),
        ("share", None, ("different", "different")),
    ],
)
def test_a_row_is_faster_in_the_direction_of_its_experiment(
    unit: str, higher_is_better: bool | None, words: tuple[str, str]
) -> None:
    assert verdict(LOW, HIGH, unit, higher_is_better) == words[0]
    assert verdict(HIGH, LOW, unit, higher_is_better) == words[1]
    assert verdict(LOW, LOW, unit, higher_is_better) == ""


def test_ratio_and_significance_of_a_row() -> None:
    found = compare(kept(row(LOW, n=1)), kept(row(HIGH, n=1)))
    (difference,) = found.differences
    assert difference.ratio.median == 2
    assert 1.9 < difference.ratio.low < 2 < difference.ratio.high < 2.1
    assert difference.p == difference.corrected == pytest.approx(2 / 12870)
    assert difference.worse_by == 1
    assert found.regressions(0.5) == [difference]
    assert found.regressions(1.0) == []


def test_rows_are_matched_by_experiment_and_parameters_in_any_order() -> None:
    a = kept(row(LOW, policy="stock", n=1), row(LOW, policy="stock", n=2), row(LOW, n=3))
    b = kept(row(HIGH, n=2.0, policy="stock"), row(LOW, n=1, policy="stock"), row(LOW, n=4))
    found = compare(a, b)
    assert [(each.a.parameters["n"], each.verdict) for each in found.differences] == [
        (1, ""),
        (2, "slower"),
    ]
    assert list(map(str, found.singles)) == ["made, n 3: only in A", "made, n 4: only in B"]
    other = compare(a, kept(row(LOW, policy="stock", n=1), name="another"))
    assert other.differences == []
    assert len(other.singles) == 4


def test_rows_without_values_say_why_they_are_not_compared() -> None:
    failed = row([], n=1)
    failed.failures = ["it died"]
    a = kept(row(LOW, n=1), row(LOW, n=2), row([], "no such build", n=3))
    b = kept(failed, row([], "left out", n=2), row([], "no such build", n=3))
    found = compare(a, b)
    assert [(each.reason, each.broke) for each in found.singles] == [
        ("not in B: it died", True),
        ("not in B: left out", False),
        ("not in A: no such build; not in B: no such build", False),
    ]


def test_units_are_not_mixed() -> None:
    found = compare(kept(row(LOW, n=1), unit="s"), kept(row(LOW, n=1), unit="ms"))
    assert [each.reason for each in found.singles] == ["the unit is 's' in A and 'ms' in B"]


def test_what_was_measured_differently_is_pointed_out() -> None:
    a = kept(row(LOW, n=1), python="3.13.0", cpu="x", time="earlier", load=0.1, quick=True)
    b = kept(row(LOW, n=1), python="3.14.0", cpu="x", time="later", load=0.2, kernel="6.1")
    assert compare(a, b).metadata == [("python", "3.13.0", "3.14.0")]


def sitting(chance: random.Random, rows: int, values: int, factors: dict[int, float]) -> Kept:
    """Rows of many sizes, with noise of 3 %, some of them slower by a factor."""
    return kept(
        *(
            row(
                [
                    10.0**size * factors.get(size, 1.0) * chance.lognormvariate(0, 0.03)
                    for _ in range(values)
                ],
                size=size,
            )
            for size in range(rows)
        )
    )


def test_equal_files_seldom_differ_anywhere() -> None:
    chance = random.Random(7)
    cases = 300
    wrong = sum(
        any(
            each.significant
            for each in compare(
                sitting(chance, 12, 10, {}), sitting(chance, 12, 10, {})
            ).differences
        )
        for _ in range(cases)
    )
    # 0.05 and three standard errors; without Holm's correction it would be 0.45.
    assert wrong / cases < 0.088


def test_a_tenth_is_found_among_many_rows() -> None:
    chance = random.Random(8)
    cases, found = 50, 0
    for _ in range(cases):
        a = sitting(chance, 12, 10, {})
        b = sitting(chance, 12, 10, {3: 1.1, 5: 1 / 1.1})
        verdicts = {each.a.parameters["size"]: each.verdict for each in compare(a, b).differences}
        found += verdicts[3] == "slower" and verdicts[5] == "faster"
        assert verdicts[3] != "faster"
        assert verdicts[5] != "slower"
    assert found >= 0.95 * cases


def test_it_is_said_when_no_row_can_be_significant() -> None:
    chance = random.Random(9)
    for rows, values, provable in ((6, 5, True), (7, 5, False), (100, 8, True), (1, 3, False)):
        found = compare(sitting(chance, rows, values, {}), sitting(chance, rows, values, {}))
        assert found.provable is provable
        enough = sitting(chance, rows, found.values_needed, {})
        assert compare(enough, enough).provable
    assert not Comparison([], [], []).provable


def write(path: Path, values: dict[int, list[float]], **changes: Any) -> Path:
    rows = [
        {"parameters": {"policy": "stock", "threads": threads}, "values": each}
        for threads, each in values.items()
    ]
    experiment = {"name": "made", "unit": "requests/s", "rows": rows, "statements": []}
    metadata = {"python": "3.13.0", "cpus": 2, **changes}
    path.write_text(json.dumps({"schema": 1, "metadata": metadata, "experiments": [experiment]}))
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    spread = [each**4 for each in LOW]
    return (
        write(tmp_path / "a.json", {1: LOW, 2: LOW, 3: [9.0]}),
        write(tmp_path / "b.json", {1: HIGH, 2: spread, 4: [9.0]}, kernel="6.1", cpus=4),
    )


def ran(*arguments: str | Path, **environment: str) -> Result:
    return run_main("bench-compare", *arguments, **environment)


def test_two_files_are_compared(files: tuple[Path, Path]) -> None:
    result = ran(*files, COLUMNS="120")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == f"A: {files[0]}, CPython 3.13.0"
    assert "cpus differs: 2 in A, 4 in B" in lines
    assert "kernel" not in result.stdout
    assert "made, in requests/s" in lines
    first, second = (re.split(" {2,}", line.strip()) for line in lines if "stock  " in line)
    assert first[:6] == ["stock", "1", "10.4", "20.7", "2.000", "faster"]
    assert first[7:] == ["0.0002", "0.0003"]
    # Its interval is wider than a fifth of its median.
    assert "!" in "".join(second[3:5])
    assert "made, policy stock, threads 3: only in A" in lines
    assert "made, policy stock, threads 4: only in B" in lines
    assert lines[-1] == (
        "2 rows compared: 2 faster, 0 without a significant difference (p of all under 0.05)"
    )


def test_a_comparison_is_kept_in_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert ran(*files, "--json", out).returncode == 0
    found = json.loads(out.read_text())
    assert found["schema"] == 1
    assert found["a"]["file"] == str(files[0])
    assert found["metadata_differences"] == {"cpus": [2, 4]}
    first = found["rows"][0]
    assert first["parameters"] == {"policy": "stock", "threads": 1}
    assert first["ratio"]["median"] == 2
    assert first["p"] == pytest.approx(2 / 12870)
    assert first["p_of_all"] == pytest.approx(4 / 12870)
    assert (first["significant"], first["verdict"]) == (True, "faster")
    assert first["a"]["count"] == 8
    assert [each["reason"] for each in found["not_compared"]] == ["only in A", "only in B"]


def test_json_on_stdout_has_it_to_itself(files: tuple[Path, Path]) -> None:
    result = ran(*files, "--json", "-", "--fail-on-regression", "100")
    assert result.returncode == 0
    assert len(json.loads(result.stdout)["rows"]) == 2
    assert "2 rows compared: 2 faster" in result.stderr


def test_nothing_in_a_file_moves_the_cursor(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", {1: LOW}, python="\x1b[2J", cpu="\x1b[3J")
    b = write(tmp_path / "b.json", {1: LOW}, cpu="x" * 10_000)
    for result in (ran(a, b), run_main("bench", "--from", a)):
        assert result.returncode == 0, result.stderr
        assert "\x1b" not in result.stdout
        assert "\\x1b[2J" in result.stdout
        assert max(map(len, result.stdout.splitlines())) <= 300


def test_a_regression_fails_where_that_is_asked_for(files: tuple[Path, Path]) -> None:
    faster, slower = ran(*files, "--fail-on-regression", "0"), ran(*reversed(files))
    assert faster.returncode == slower.returncode == 0
    assert faster.stdout.endswith("No row is significantly worse by more than 0 %.\n")
    failed = ran(*reversed(files), "--fail-on-regression", "40")
    assert failed.returncode == 1
    assert "regression: made, policy stock, threads 1: slower by 50.0%" in failed.stdout
    allowed = ran(*reversed(files), "--fail-on-regression", "100")
    assert allowed.returncode == 0


def test_a_row_that_fails_in_the_second_file_is_a_regression(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", {1: LOW, 2: LOW})
    b = write(tmp_path / "b.json", {1: LOW, 2: []})
    found = json.loads(b.read_text())
    found["experiments"][0]["rows"][1]["failures"] = ["it died"]
    b.write_text(json.dumps(found))
    result = ran(a, b, "--fail-on-regression", "10")
    assert result.returncode == 1
    assert "regression: made, policy stock, threads 2: not in B: it died" in result.stdout


def refused(*arguments: str | Path) -> str:
    result = ran(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    line, end, rest = result.stderr.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("headway bench-compare: ")


def test_a_check_that_cannot_fail_is_refused(tmp_path: Path) -> None:
    few = write(tmp_path / "few.json", dict.fromkeys((1, 2), LOW[:3]))
    assert "2 rows have too few values for any to be significant; 5 of each" in refused(
        few, few, "--fail-on-regression", "5"
    )
    assert "no row has values in both files" in refused(
        few, write(tmp_path / "none.json", {7: LOW}), "--fail-on-regression", "5"
    )
    shown = ran(few, few)
    assert shown.returncode == 0
    assert "so few values no row can be significant" in shown.stdout
    assert "5 of each in both files are enough" in shown.stdout


def test_bad_input_is_one_line(files: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = files
    assert refused(a) == "A B: found 1 files; allowed: two, the earlier one first"
    assert refused(a, b, a) == "A B: found 3 files; allowed: two, the earlier one first"
    assert refused(a, tmp_path) == f"FILE '{tmp_path}': is a directory"
    assert refused(a, tmp_path / "no") == f"FILE '{tmp_path / 'no'}': no such file or directory"
    assert refused(a, b, "--json", "/nonexistent/out").startswith("--json '/nonexistent/out' ")
    for percent in ("-1", "many", "nan", "1001"):
        assert f"found '{percent}'; allowed: a percentage from 0 to 1000" in refused(
            a, b, f"--fail-on-regression={percent}"
        )


def test_help_teaches() -> None:
    result = run_main("bench-compare", "--help")
    assert result.returncode == 0
    for word in ("Mann and Whitney", "Holm", "bootstrap", "exit status", "--values N"):
        assert word in result.stdout


@pytest.mark.slow("runs an experiment")
def test_real_results_are_compared(tmp_path: Path) -> None:
    options = ("--policy", "stock", "--values", "3", "--seconds", "0.02", "--threads", "1")
    path = tmp_path / "a.json"
    made = run_main("bench", "countdown", *options, "--switch-interval", "0.005", "--json", path)
    assert made.returncode == 0, made.stderr
    result = ran(path, path)
    assert result.returncode == 0, result.stderr
    assert "countdown, in s" in result.stdout
    # A free-threaded build brings a row of its own.
    assert re.search(r"^(\d) rows? compared: \1 without a significant", result.stdout, re.M)


def test_speed_has_words_of_its_own() -> None:
    assert all(map(comparison.is_speed, ("s", "ms", "ns per increment", "requests/s", "rpm")))
    assert not any(map(comparison.is_speed, ("", "share", "lost updates")))
