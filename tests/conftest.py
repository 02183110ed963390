"""See run_conditions.py, which the tests of the laboratory share."""

from __future__ import annotations

from run_conditions import (
    folders,
    nothing_is_left,
    pytest_collection_modifyitems,
    pytest_configure,
)

__all__ = ["folders", "nothing_is_left", "pytest_collection_modifyitems", "pytest_configure"]
