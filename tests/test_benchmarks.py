"""Benchmarks of developers that share programs with `headway bench`, cut short: they measure."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from launch import GIL_ENABLED, python

BENCH = Path(__file__).resolve().parent.parent / "bench"
SHORT = ("--rounds", "1", "--seconds", "0.3", "--policy", "priority")

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("countdown", ("--threads", "2")),
        ("echo", ("--cpu-threads", "1")),
        ("latency", ("--cpu-threads", "1", "--workload", "A")),
        ("throughput", ("--threads", "1", "--workload", "A")),
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
