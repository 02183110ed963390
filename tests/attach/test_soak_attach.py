"""A cut of scripts/soak_attach.py."""

from __future__ import annotations

from pathlib import Path

from launch import python
from test_attach import pytestmark as pytestmark

SOAK = Path(__file__).resolve().parents[2] / "scripts" / "soak_attach.py"


def test_a_program_is_attached_to_and_left_again_and_again() -> None:
    result = python(SOAK, "--cycles", "6", "--kills", "2", timeout=300)
    assert result.returncode == 0, result.stderr
    assert "2 kills; the program ended with 0, by itself" in result.stdout


def test_a_bad_number_of_cycles_is_one_line() -> None:
    result = python(SOAK, "--cycles", "few")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("soak_attach: argument --cycles: found 'few'")
    assert result.stderr.count("\n") == 1
