"""The tests of the laboratory run under the conditions of Headway's own, and use their modules."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [
    str(TESTS / folder) for folder in ("", "output", "programs", "recipes", "seams", "server")
]
sys.path.append(str(TESTS.parent / "bench"))

from run_conditions import (  # noqa: E402
    folders,
    nothing_is_left,
    pytest_collection_modifyitems,
    pytest_configure,
)

__all__ = ["folders", "nothing_is_left", "pytest_collection_modifyitems", "pytest_configure"]
