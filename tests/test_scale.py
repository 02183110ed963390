"""The rows of the histogram of waits."""

from __future__ import annotations

import itertools

import pytest
from made_reports import histogram

from headway.report import wait_scale
from headway.report.model import Histogram


@pytest.mark.parametrize("interval_s", [1e-5, 1e-4, 0.0005, 0.005, 0.1])
@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16])
def test_waits_just_above_a_multiple_are_in_the_row_that_begins_there(
    interval_s: float, most: int
) -> None:
    """The bumps of the switch interval are seen as bumps, with valleys between, at any interval."""
    waits_s = [k * interval_s * 1.01 for k in range(1, most + 1) for _ in range(100 - k)]
    rows = wait_scale.rows(Histogram.decode(histogram(waits_s)), interval_s)
    marked = {row.multiple: row for row in rows if row.multiple}
    for multiple in range(1, most + 1):
        row = marked[multiple]
        assert row.count == 100 - multiple
        assert row.low_s == pytest.approx(multiple * interval_s)
    assert sum(row.count for row in rows) == len(waits_s)
    if 2 <= most < 8:
        assert any(row.count == 0 for row in rows)


def test_rows_meet_and_lose_nothing() -> None:
    waits_s = [1e-7 * 1.3**n for n in range(70)]
    rows = wait_scale.rows(Histogram.decode(histogram(waits_s)), 0.005)
    assert sum(row.count for row in rows) == len(waits_s)
    for row, following in itertools.pairwise(rows):
        assert row.high_s == pytest.approx(following.low_s)
        assert row.low_s < row.high_s


@pytest.mark.parametrize("interval_s", [None, 1e-6, 0.005, 1000.0])
@pytest.mark.parametrize("wait_s", [1e-9, 1e-6, 1e-3, 0.005, 1.0, 1e4])
def test_a_single_wait_is_a_single_row(interval_s: float | None, wait_s: float) -> None:
    rows = wait_scale.rows(Histogram.decode(histogram([wait_s])), interval_s)
    assert [row.count for row in rows] == [1]
    assert rows[0].low_s <= wait_s * 1.0625
    assert wait_s <= rows[0].high_s * 1.0625


def test_no_waits_no_rows() -> None:
    assert wait_scale.rows(Histogram.decode(histogram([])), 0.005) == []


def test_the_picture_stays_small() -> None:
    waits_s = [1e-6 * 1.1**n for n in range(200)]
    for interval_s in (1e-6, 1e-4, 0.005, 1.0):
        assert len(wait_scale.rows(Histogram.decode(histogram(waits_s)), interval_s)) < 50


def test_a_gap_is_one_row() -> None:
    """Short waits, and those for calls that keep the GIL for a third of a second."""
    waits_s = [1e-4] * 5 + [0.3] * 20
    rows = wait_scale.rows(Histogram.decode(histogram(waits_s)), 0.005)
    empty = [row.count == 0 for row in rows]
    assert empty.count(True) == 1
    for row, following in itertools.pairwise(rows):
        assert row.high_s == pytest.approx(following.low_s)
