"""The judgement of scripts/witness.py, without the CPython that it needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))
try:
    from witness import bucket_of, compare, compare_requests, main, mean_problems
finally:
    sys.path.remove(str(SCRIPTS))

MS = 1_000_000


def witness(**changes: Any) -> dict[str, Any]:
    return {
        "takes": 1_000,
        "contended_takes": 100,
        "waited_ns": 500 * MS,
        "drops": 1_000,
        "forced_drops": 40,
        "held_ns": 900 * MS,
        "doubtful_takes": 3,
        "mutex_waited_ns": 60_000,
        **percentiles(p50=5 * MS, p90=6 * MS, p99=7 * MS),
        **changes,
    }


def percentiles(**of: int) -> dict[str, int]:
    """Exact ones, that no doubtful take changes."""
    return {f"{key}{bound}": ns for key, ns in of.items() for bound in ("", "_least", "_most")}


def meter(**changes: Any) -> dict[str, Any]:
    """The meter's figures that agree with `witness()`."""
    return {
        "takes": 1_000,
        "contended_takes": 100,
        "voluntary_drops": 960,
        "forced_drops": 40,
        "held_s": 0.9,
        "wait": {"sum_s": 0.5, "p50_s": 0.005, "p90_s": 0.006, "p99_s": 0.007},
        **changes,
    }


def test_what_agrees() -> None:
    assert compare(meter(), witness()) == []
    nearly = {"sum_s": 0.4976, "p50_s": 0.0051, "p90_s": 0.0059, "p99_s": 0.00705}
    assert compare(meter(held_s=0.9044, wait=nearly, contended_takes=97), witness()) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"takes": 999}, "takes"),
        ({"voluntary_drops": 961}, "drops"),
        ({"voluntary_drops": 961, "forced_drops": 39}, "forced_drops"),
        ({"contended_takes": 104}, "contended_takes"),
        ({"contended_takes": 96}, "contended_takes"),
        ({"held_s": 0.89}, "held"),
        ({"wait": {**meter()["wait"], "sum_s": 0.497}}, "waited"),
        ({"wait": {**meter()["wait"], "p90_s": 0.0063}}, "p90"),
    ],
)
def test_what_differs_is_named(changes: dict[str, Any], named: str) -> None:
    problems = compare(meter(**changes), witness())
    assert [problem.split(":")[0] for problem in problems] == [named]


def test_many_short_waits_may_differ_by_50_ns_each() -> None:
    waits = {
        "sum_s": 0.000_095,
        "p50_s": 0.000_000_95,
        "p90_s": 0.000_000_95,
        "p99_s": 0.000_000_95,
    }
    exact = witness(waited_ns=100_000, **percentiles(p50=1_000, p90=1_000, p99=1_000))
    assert compare(meter(wait=waits), exact) == []
    problems = compare(meter(wait={**waits, "sum_s": 0.000_094}), exact)
    assert [problem.split(":")[0] for problem in problems] == ["waited"]


def test_doubtful_takes_may_move_a_percentile() -> None:
    exact = witness(p90_least=5 * MS, p90_most=6 * MS)
    wait = {**meter()["wait"], "p90_s": 0.0051}
    assert compare(meter(wait=wait), exact) == []


def test_a_program_without_waits() -> None:
    nothing = {"sum_s": 0.0, "p50_s": None, "p90_s": None, "p99_s": None}
    exact = witness(contended_takes=0, waited_ns=0, p50=None, p90=None, p99=None)
    assert compare(meter(contended_takes=0, wait=nothing), exact) == []


@pytest.mark.parametrize(
    ("ns", "bounds"),
    [
        (0, (0, 512)),
        (511, (0, 512)),
        (512, (512, 544)),
        (1_023, (992, 1_024)),
        (1_024, (1_024, 1_088)),
        (5 * MS, (4_980_736, 5_242_880)),
    ],
)
def test_buckets(ns: int, bounds: tuple[int, int]) -> None:
    assert bucket_of(ns) == bounds


def test_percentiles_that_lean() -> None:
    leaning = {"p50": 0.03, "p90": 0.0, "p99": -0.03}
    assert mean_problems([leaning, {"p50": -0.02, "p90": 0.0, "p99": -0.01}]) == [
        "p99: the mean signed error is -2.00 % over 2 runs"
    ]
    assert mean_problems([]) == []


def test_requests() -> None:
    # Two threads; the first request of each is not compared.
    marks = [[1, 7, 90, 1], [2, 8, 10 * MS, 3], [3, 7, 5 * MS + 90, 2], [4, 8, 10 * MS, 3]]
    log = {1: 1.0, 2: 1.0, 3: 0.005, 4: 0.0}
    total, problems = compare_requests(log, marks)
    assert problems == []
    assert total == {
        "requests": 2,
        "waits": 1,
        "meter_ns": 5 * MS,
        "witness_ns": 5 * MS,
        "differ": 0,
    }
    _, problems = compare_requests({**log, 4: 0.001}, marks)
    assert problems == ["sum: meter 6000000 ns, witness 5000000 ns", "1 of 2 requests differ"]


def test_another_python_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["witness.py"])
    assert main() == 2
    assert capsys.readouterr().err.count("\n") == 1
