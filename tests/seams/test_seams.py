"""Every feature that two parts make together, with the real parts, from its start to every end."""

from __future__ import annotations

from pathlib import Path

import pytest
from parts import End, Row, run
from table import ROWS


def cases() -> list[object]:
    return [
        pytest.param(
            row,
            end,
            id=f"{row.name}, {end.name}",
            marks=[pytest.mark.slow(row.slow)] if row.slow else [],
        )
        for row in ROWS
        for end in row.ends
    ]


@pytest.mark.parametrize(("row", "end"), cases())
def test_it_ends_and_leaves_nothing(row: Row, end: End, tmp_path: Path) -> None:
    run(row, end, tmp_path)
