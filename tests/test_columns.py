"""Names from elsewhere, made fit for a terminal."""

from __future__ import annotations

import unicodedata

import pytest

from headway.report import columns


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("worker-1", "worker-1"),
        ("Träger ω 工人", "Träger ω 工人"),
        ("\x1b[2J\x1b[31mred", r"\x1b[2J\x1b[31mred"),
        ("two\nlines\tand\0more\r", r"two\nlines\tand\x00more\r"),
        ("turned \u202eround", r"turned \u202eround"),
        ("half a \udc80 pair", r"half a \udc80 pair"),
        (None, "None"),
        ("x" * 40, "x" * 40),
        ("x" * 41, "x" * 39 + "~"),
        ("工" * 20, "工" * 20),
        ("工" * 21, "工" * 19 + "~"),
        ("\n" * 1000, r"\n" * 19 + "\\~"),
        ("e\u0301" * 40, "e\u0301" * 40),
    ],
)
def test_a_name_is_one_short_printable_line(name: str, shown: str) -> None:
    assert columns.name(name) == shown
    assert columns.width(shown) <= columns.MAX_NAME


@pytest.mark.parametrize("limit", [1, 2, 5, 12])
def test_padding_is_to_the_column(limit: int) -> None:
    for text in ("", "a", "工人", "a工b人c", "plain text that is long"):
        assert columns.width(columns.pad(text, limit)) == limit


@pytest.mark.parametrize("character", "工人あアㄱ한语、🚀😀aäωжא☃\u0301│█µ")
def test_widths_are_unicodes(character: str) -> None:
    wide = unicodedata.east_asian_width(character) in ("W", "F")
    wanted = 2 if wide else 0 if unicodedata.combining(character) else 1
    assert columns.width(character) == wanted
