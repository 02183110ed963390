"""Every feature that two parts make together, with the real parts, from its start to every end."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from launch import GIL_ENABLED
from parts import End, Row, run
from table import ROWS

from headway.server.config.options import SECTIONS
from headway.verbs import VERBS

CONTRIBUTING = Path(__file__).resolve().parent.parent.parent / "CONTRIBUTING.md"
# These of the options that concern more than the processes that serve need no seam of their own.
PART_OF_ANOTHER = {
    *("telemetry-interval", "telemetry-group", "slow-requests", "capture-user-agent"),
    "final-table",
}


def cases() -> list[object]:
    return [
        pytest.param(row, end, id=f"{row.name}, {end.name}", marks=marks_of(row))
        for row in ROWS
        for end in row.ends
    ]


def marks_of(row: Row) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.slow(row.slow)] if row.slow else []
    if row.package and find_spec(row.package) is None:
        marks.append(pytest.mark.skip(reason=f"{row.package} is not installed"))
    if row.needs_gil and not GIL_ENABLED:
        marks.append(pytest.mark.skip(reason="without a GIL there is nothing to do"))
    return marks


@pytest.mark.parametrize(("row", "end"), cases())
def test_it_ends_and_leaves_nothing(row: Row, end: End, tmp_path: Path) -> None:
    run(row, end, tmp_path)


# What they meet is a program that runs already: tests/attach has its ends and theirs.
OF_THEIR_OWN = {"attach", "detach"}


def test_every_verb_has_a_row() -> None:
    assert {row.verb for row in ROWS} | OF_THEIR_OWN == {verb.name for verb in VERBS}


def test_every_option_that_starts_a_process_or_talks_to_one_has_a_row() -> None:
    options = {option.name for option in SECTIONS["telemetry"] + SECTIONS["server"]}
    # These two are options of a process group.
    options |= {"python-home", "preload"}
    assert {each for row in ROWS for each in row.options} == options - PART_OF_ANOTHER


def test_contributing_lists_the_rows_with_their_ends() -> None:
    _, _, section = CONTRIBUTING.read_text().partition("\n### Seams\n")
    listed = re.findall(r"^\| `(.*?)` \| (.*?) \|", section.partition("\n### ")[0], re.M)
    ends = [(row.name, ", ".join(end.name for end in row.ends)) for row in ROWS]
    assert listed == ends
