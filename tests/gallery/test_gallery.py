"""The sentence of the report is right on programs whose cause is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_causes import SITUATIONS, Situation
from launch import GIL_ENABLED, headway, read_json

from headway.report import sentence
from headway.report.model import GilReport

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
]


# The shortest program.
WALL_S = 2.0


def said(json_path: Path) -> str:
    return sentence.sentence(GilReport.decode(read_json(json_path)))


@pytest.mark.slow("runs programs for seconds")
@pytest.mark.parametrize(
    "situation",
    [each for each in SITUATIONS if each.is_for_ci],
    ids=lambda situation: situation.program,
)
def test_the_sentence_names_the_cause(tmp_path: Path, situation: Situation) -> None:
    out = tmp_path / "out.json"
    result = headway("run", "--json", out, situation.path)
    assert result.returncode == 0, result.stderr
    machine = read_json(out)["machine"]
    others_s = machine["busy_s"] - machine["own_s"]
    if others_s > 0.25 * machine["busy_s"] and machine["busy_s"] > 0.75 * machine["cores"] * WALL_S:
        pytest.skip("other programs take the cores of this machine")
    found = said(out)
    assert situation.problem(found) is None, f"{situation.problem(found)}: {found}"
    assert found in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("convoy", "it advises the policy"),
        ("turns", None),
        ("long_calls", "it does not begin with 'Long holds: '"),
    ],
)
def test_a_wrong_sentence_is_found(case: str, message: str | None) -> None:
    (situation,) = (each for each in SITUATIONS if each.program == case)
    made = "The GIL limits what gets done: a waited 1 s of 1 s, while 3 threads held the GIL most."
    if case == "convoy":
        situation = situation._replace(begins=("The GIL",), names=(), helps=False)
        made += " The policy priority would prevent 1 s of 1 s waited."
    assert situation.problem(made) == message
