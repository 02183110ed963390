"""Lets the tests here start a tool as bench/recipes.py does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
sys.path.append(str(TESTS.parent / "bench"))


@pytest.fixture(autouse=True)
def _without_headway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test chooses its own value of HEADWAY."""
    monkeypatch.delenv("HEADWAY", raising=False)
