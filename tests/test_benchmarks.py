"""Benchmarks of developers that share programs with `headway bench`, cut short: they measure."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from launch import GIL_ENABLED, python

BENCH = Path(__file__).resolve().parent.parent / "bench"
SHORT = ("--rounds", "1", "--seconds", "0.3", "--policy", "priority")

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")


@pytest.mark.serial
@pytest.mark.slow("runs benchmark scripts")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("echo", ("--cpu-threads", "1")),
        ("pathological", ("--case", "pinned")),
    ],
)
def test_a_benchmark_measures_stock_and_a_policy(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    if name == "pathological" and shutil.which("taskset") is None:
        pytest.skip("there is no taskset")
    file = tmp_path / "results.json"
    result = python(BENCH / f"{name}.py", *SHORT, *options, "--json", file)
    assert result.returncode == 0, result.stderr
    rows = json.loads(file.read_text())["experiments"][0]["rows"]
    assert {row["parameters"]["policy"] for row in rows} >= {None, "priority"}
    assert all(row["median"] > 0 for row in rows)


@pytest.mark.serial
@pytest.mark.slow("runs benchmark scripts")
@pytest.mark.parametrize(
    ("name", "options", "figures"),
    [
        ("profile_cost", ("--part", "few"), {"cpu_per_work_s", "contended_drops_per_s"}),
        ("profile_cost", ("--part", "many"), {"work_per_s", "requests_per_s"}),
        ("py_spy", ("--program", "convoy", "--seconds", "1"), {"py_spy_share", "headway_share"}),
    ],
)
def test_a_benchmark_of_the_profile_measures(
    tmp_path: Path, name: str, options: tuple[str, ...], figures: set[str]
) -> None:
    if name == "py_spy" and not Path(sys.executable).with_name("py-spy").exists():
        pytest.skip("there is no py-spy")
    file = tmp_path / "results.json"
    short = ("--rounds", "1", "--seconds", "0.3")
    result = python(BENCH / f"{name}.py", *short, *options, "--json", file)
    assert result.returncode == 0, result.stderr
    experiments = json.loads(file.read_text())["experiments"]
    medians = {
        each["name"].removeprefix(f"{name} "): [row["median"] for row in each["rows"]]
        for each in experiments
    }
    assert all(max(medians[figure]) > 0 for figure in figures)


@pytest.mark.serial
@pytest.mark.slow("runs a benchmark script")
def test_the_benchmark_of_growth_measures_each_part(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    short = ("--rounds", "1", "--seconds", "0.5", "--size", "20", "--policy", "priority")
    parts = ("waiters", "idle", "download", "upload", "headers")
    result = python(BENCH / "scaling.py", *short, "--part", *parts, "--peer", "--json", file)
    assert result.returncode == 0, result.stderr
    experiments = json.loads(file.read_text())["experiments"]
    rows = {each["name"].removeprefix("scaling "): each["rows"] for each in experiments}
    assert rows["missing"] == []
    subjects = {row["parameters"]["subject"] for row in rows["turns_per_s"]}
    assert subjects == {"stock 5 ms", "interval", "priority"}
    measured = [row for row in rows["p50_s"] if row["median"] > 0]
    assert {row["parameters"]["part"] for row in measured} == {*parts} - {"waiters"}
    assert [row["median"] for row in rows["idle_connections"]] == [20]
    assert all(row["median"] > 0 for row in rows["snapshot_s"])


@pytest.mark.serial
@pytest.mark.slow("tunes a server for some seconds")
def test_the_benchmark_of_tune_knows_the_answer(tmp_path: Path) -> None:
    """Nobody waits for the GIL, so nothing can win, however busy the machine is."""
    file = tmp_path / "results.json"
    short = ("--rounds", "1", "--seconds", "8", "--service", "waiting")
    result = python(BENCH / "tune.py", *short, "--json", file)
    assert result.returncode == 0, result.stderr
    experiments = json.loads(file.read_text())["experiments"]
    medians = {each["name"]: [row["median"] for row in each["rows"]] for each in experiments}
    assert medians["tune right"] == [1.0]
    assert medians["tune winner"] == [0.0]


@pytest.mark.serial
@pytest.mark.slow("runs a benchmark script")
@pytest.mark.parametrize("cause", ["sleep", "python", "c", "thread"])
def test_the_benchmark_of_event_loops_has_each_cause(tmp_path: Path, cause: str) -> None:
    file = tmp_path / "results.json"
    options = ("--part", "known", "--loop", "asyncio", "--cause", cause, "--rounds", "1")
    result = python(BENCH / "event_loops.py", *options, "--json", file)
    assert result.returncode == 0, result.stderr
    experiments = json.loads(file.read_text())["experiments"]
    medians = {each["name"]: [row["median"] for row in each["rows"]] for each in experiments}
    assert medians["event_loops known right_lines"] == [1.0], result.stdout
    assert medians["event_loops known lines_share"][0] > 0


def test_the_benchmark_of_event_loops_names_what_is_not_installed() -> None:
    if find_spec("aiohttp") is not None:
        pytest.skip("aiohttp is installed")
    result = python(BENCH / "event_loops.py", "--part", "others", "--server", "aiohttp")
    assert result.returncode == 2
    assert "aiohttp is left out: " in result.stdout
    assert "has no aiohttp: scripts/recipes" in result.stdout
    assert result.stderr == "bench event_loops: no server is installed that could be measured\n"


@pytest.mark.slow("runs a benchmark script")
def test_the_benchmark_of_starts_measures_with_and_without_bytecode() -> None:
    result = python(BENCH / "startup.py", "--bytecode", "--quick")
    assert result.returncode == 0, result.stderr
    cases = [
        line.split(" ms (")[0].rsplit(maxsplit=1)[0] for line in result.stdout.splitlines()[2:]
    ]
    assert [case.split() for case in cases] == [
        ["not", "compiled", "unset"],
        ["not", "compiled", "1"],
        ["compiled", "unset"],
        ["compiled", "1"],
    ]


@pytest.mark.parametrize("name", ["event_loops", "simulated_echo", "what_if"])
def test_a_benchmark_tells_its_options(name: str) -> None:
    result = python(BENCH / f"{name}.py", "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: ")


def test_what_is_listed_can_be_run() -> None:
    code = """
import re, sys
sys.path.insert(0, sys.argv[1])
import run
listed = re.findall(r"^  ([a-z_]+) {2,}", run.__doc__, re.MULTILINE)
assert "what_if" in listed, listed
print(run.expand(listed) == listed)
"""
    result = python("-c", code, BENCH)
    assert result.stdout == "True\n", result.stderr
