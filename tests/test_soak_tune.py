"""A cut of scripts/soak_tune.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launch import GIL_ENABLED, python

SOAK = Path(__file__).resolve().parent.parent / "scripts" / "soak_tune.py"


@pytest.mark.skipif(not GIL_ENABLED, reason="without a GIL there are no policies")
@pytest.mark.timeout(400)
@pytest.mark.slow("a soak")
@pytest.mark.serial
def test_experiments_one_after_another_cost_no_request() -> None:
    result = python(SOAK, "--minutes", "0.5", "--seed", "5", timeout=350)
    assert result.returncode == 0, result.stderr
    counts = re.search(r"^  all((?: +[\d,]+){4})$", result.stdout, re.M)
    assert counts, result.stdout
    sent, answered, _, failed = (int(each.replace(",", "")) for each in counts[1].split())
    assert sent == answered > 0
    assert failed == 0
    assert re.search(r"^  experiments: [a-z ]+ [1-9]", result.stdout, re.M), result.stdout
