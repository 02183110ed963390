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
        ("x" * 41, "x" * 26 + "~" + "x" * 13),
        ("工" * 20, "工" * 20),
        ("工" * 21, "工" * 13 + "~" + "工" * 6),
        ("\n" * 1000, r"\n" * 13 + "~n" + r"\n" * 6),
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


@pytest.mark.parametrize(
    ("names", "limit", "shown"),
    [
        (["compute-1", "compute-2"], 6, ["comp~1", "comp~2"]),
        (["Thread-1 (compute)", "Thread-2 (compute)"], 10, ["Thread-1 ~", "Thread-2 ~"]),
        (["short", "a longer name", "a longer nape"], 8, ["short", "a lon~me", "a lon~pe"]),
        (["工人-1", "工人-2"], 4, ["工~1", "工~2"]),
        (["same", "same"], 2, ["s~"]),
    ],
)
def test_names_that_differ_stay_different(names: list[str], limit: int, shown: list[str]) -> None:
    assert list(columns.apart(names, limit).values()) == shown


def test_names_that_no_cut_tells_apart_are_cut_all_the_same() -> None:
    found = columns.apart(["aaa1aaa", "aaa2aaa"], 3)
    assert all(columns.width(each) <= 3 for each in found.values())
