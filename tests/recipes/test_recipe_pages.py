"""bench/recipes.py, which measures the recipes and writes the figures into their pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import recipe_pages
from launch import execute, python
from marks import Marks
from recipe_list import RECIPES, named
from recipe_pages import Measured, Row
from recipe_tool import BIN, ROOT, need

BENCH = ROOT / "bench" / "recipes.py"
HEAD = "| tool | p99 before |\n|---|---|"


def measured(name: str, p99_ms: float) -> Measured:
    before = Row(p50_ms=20.0, p99_ms=p99_ms, max_ms=400.0, heavy_per_s=4.0)
    after = Row(p50_ms=0.5, p99_ms=2.0, max_ms=3.0, heavy_per_s=4.0)
    return Measured(named(name), f"{name} 1.0", before, after, p99_ms / 2.0)


def test_a_row_that_was_not_measured_stays() -> None:
    both = recipe_pages.table(HEAD, [measured("pytest", 300.0), measured("uvicorn", 100.0)])
    lines = recipe_pages.table(both, [measured("uvicorn", 200.0)]).splitlines()
    assert lines[:2] == HEAD.splitlines()
    # In the order of RECIPES.
    assert lines[2].startswith("| [uvicorn, ")
    assert "| 200 ms | 2.00 ms | 100 |" in lines[2]
    assert lines[3].startswith("| [pytest](pytest.md) | pytest 1.0 | 300 ms |")


def test_the_sentences_have_the_figures_of_both_rows() -> None:
    sentences = measured("uvicorn", 300.0).sentences()
    assert sentences["before"].startswith(
        "Without Headway a light request takes 20.0 ms in the median, 300 ms at"
    )
    after = " ".join(sentences["after"].split())
    assert "2.00 ms at the 99th percentile" in after
    assert "`bench/recipes.py --recipe uvicorn`, uvicorn 1.0, CPython" in after


def test_a_marked_part_is_replaced_and_nothing_else() -> None:
    marks = Marks("kind")
    text = "one\n\n<!-- kind: a -->\n\nold\n\n<!-- kind: end -->\n\ntwo\n"
    assert marks.replace(text, "a", "new") == text.replace("old", "new")


def test_every_page_has_the_parts_that_are_written() -> None:
    recipe_pages.check(RECIPES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quick", "--write"), "--write: found --quick, whose figures are worth nothing"),
        (("--policy", "priority"), "--policy: found one, where each recipe has its own"),
        (("--recipe", "nothing"), "argument --recipe: invalid choice: 'nothing'"),
    ],
)
def test_refusals_are_one_line(options: tuple[str, ...], message: str) -> None:
    result = python(BENCH, *options)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"bench recipes: {message}")


@pytest.mark.slow("measures FastAPI for some seconds")
def test_a_recipe_is_measured_before_and_after(tmp_path: Path) -> None:
    """The median falls to a tenth or less, also on a busy machine."""
    need(named("fastapi").packages)
    file = tmp_path / "results.json"
    short = ("--recipe", "fastapi", "--rounds", "1", "--seconds", "2", "--json", str(file))
    result = execute([str(BIN / "python"), str(BENCH), *short])
    assert result.returncode == 0, result.stderr
    experiments = json.loads(file.read_text())["experiments"]
    rows = {each["name"]: each["rows"] for each in experiments}
    before, after = rows["recipes p50_s"]
    assert [row["parameters"]["headway"] for row in (before, after)] == [None, "priority"]
    assert before["median"] > after["median"] > 0
