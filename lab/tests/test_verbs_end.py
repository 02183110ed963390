"""Every verb of the laboratory, from its start to every end, as in tests/seams."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch import HEADWAY, execute
from parts import End, Row, Scene, run
from table import end_itself, kill_child, killed, terminal_closed, verb_stops

from headway_lab.verbs import VERBS


def bench(scene: Scene) -> None:
    row = ["--policy", "stock", "--threads", "1", "--mode", "threads", "--switch-interval", "5ms"]
    words = ["bench", "echo", "--values", "3", "--seconds", "0.5", *row]
    scene.headway(*words, ready="round 1", on_terminal=True)


def bench_compare(scene: Scene) -> None:
    for name in ("before.json", "after.json"):
        scene.write(name, "")
        words = ["simulate", "echo", "--values", "2", "--threads", "1", "--json", name]
        shown = execute([*HEADWAY, *words], cwd=scene.folder)
        assert shown.returncode == 0, shown.stderr
    scene.headway("bench-compare", "before.json", "after.json", ready="")


def simulate(scene: Scene) -> None:
    scene.headway("simulate", "echo", "--seconds", "60", ready="echo")


ROWS = (
    Row(
        "bench",
        "bench",
        bench,
        (
            *verb_stops(),
            terminal_closed(),
            End("SIGKILL of the program", 1, kill_child(".py")),
            killed("the experiment"),
        ),
        slow="measures for ten seconds",
    ),
    Row("bench-compare", "bench-compare", bench_compare, (end_itself(),), slow="simulates twice"),
    Row("simulate", "simulate", simulate, verb_stops()),
)


@pytest.mark.parametrize(
    ("row", "end"),
    [
        pytest.param(
            row,
            end,
            id=f"{row.name}, {end.name}",
            marks=[pytest.mark.slow(row.slow)] if row.slow else [],
        )
        for row in ROWS
        for end in row.ends
    ],
)
def test_it_ends_and_leaves_nothing(row: Row, end: End, tmp_path: Path) -> None:
    run(row, end, tmp_path)


def test_every_verb_has_a_row() -> None:
    assert {row.verb for row in ROWS} == {verb.name for verb in VERBS}
