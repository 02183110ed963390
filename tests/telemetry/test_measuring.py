"""What is measured of a range does not depend on when one asks, nor on who is still there."""

from __future__ import annotations

from pathlib import Path

import pytest
from ticks import START, Bench

from headway.telemetry.measuring import measure
from headway.telemetry.question import Range
from headway.telemetry.selection import EVERYTHING

PIDS = (101, 102)


@pytest.mark.parametrize("later_s", [0, 200])
@pytest.mark.parametrize("seconds", [8, 20, 60])
def test_rates_of_a_short_range_are_the_same_when_its_processes_have_ended(
    tmp_path: Path, seconds: int, later_s: int
) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    try:
        bench.run(100, PIDS)
        bench.settle()
        bench.clock.now += later_s
        summary = measure(bench.history, Range(START + 20, START + 20 + seconds), EVERYTHING)
    finally:
        bench.stop()
    assert summary["config"]["processes"] == len(PIDS)
    assert summary["summary"]["processes"] == pytest.approx(len(PIDS), rel=0.2)
    # Ten requests a second each.
    assert summary["summary"]["rps"] == pytest.approx(20, rel=0.2)
