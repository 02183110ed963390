"""How long a loop may sleep before the next thing that is due."""

from __future__ import annotations

import pytest

from headway.server.poll_timeout import poll_timeout_ms


@pytest.mark.parametrize(
    ("deadlines", "expected"),
    [
        ([], None),
        ([100.0], 0),
        ([99.0, 200.0], 0),
        ([101.5], 1500),
        ([103.0, 101.0, 102.0], 1000),
        # Rounded up: a loop that wakes too early goes round once more.
        ([100.0001], 1),
        # poll(2) counts milliseconds in 32 bits.
        ([100.0 + 86_400 * 60], 3_600_000),
        ([float("inf")], 3_600_000),
    ],
)
def test_patience(deadlines: list[float], expected: int | None) -> None:
    assert poll_timeout_ms(iter(deadlines), 100.0) == expected
