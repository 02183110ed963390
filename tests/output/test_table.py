"""How results are laid out: rows and columns of tables."""

from __future__ import annotations

import pytest
from made_rows import results, row

from headway.output.table import Cell, listing, text_of


def test_a_listing_has_a_line_for_each_row() -> None:
    measured = row([3.0] * 3, 4.0, figures={"p99_s": [0.5]}, policy="stock", switch_interval=0.005)
    missing = row([], None, "no GIL to wait for", policy="stock", switch_interval=0.1)
    table = listing(
        results(measured, missing),
        "waits",
        ["policy", "switch_interval"],
        {"requests/s": "", "p99 (s)": "p99_s"},
    )
    assert table.names == 2
    assert table.headings == ["policy", "switch interval", "requests/s", "p99 (s)"]
    first, second = table.rows
    assert [cell.text for cell in first[:2]] == ["stock", "5 ms"]
    assert first[2] == Cell(3.0, 3.0, 3.0, 4.0, False)
    assert first[3] == Cell(0.5, 0.5, 0.5)
    assert [cell.text for cell in second] == ["stock", "100 ms", "no GIL to wait for", ""]


@pytest.mark.parametrize(
    ("parameter", "value", "text"),
    [
        ("switch_interval", 0.00001, "10 µs"),
        ("wait_s", 0.5, "500 ms"),
        ("share", 0.25, "0.25"),
        ("threads", 4, "4"),
        ("pinned", True, "yes"),
        ("policy", "stock", "stock"),
    ],
)
def test_parameters_as_people_read_them(parameter: str, value: object, text: str) -> None:
    assert text_of(parameter, value) == text
