"""A cut of scripts/soak_interpreters.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launch import python

SOAK = Path(__file__).resolve().parent.parent / "scripts" / "soak_interpreters.py"
HAS_OWN_GILS = sys.version_info >= (3, 12)


@pytest.mark.timeout(300)
@pytest.mark.free_threading
@pytest.mark.slow("a soak")
def test_interpreters_are_made_and_ended_under_load() -> None:
    gil = () if HAS_OWN_GILS else ("--shared-gil",)
    result = python(SOAK, "--interpreters", "8", *gil, timeout=250)
    assert result.returncode in (0, 1), result.stderr
    assert "requests were answered, none failed." in result.stdout, result.stderr
    # So few show nothing of what a process grows by.
    assert "a plain interpreter leaves" in result.stdout, result.stderr
