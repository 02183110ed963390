"""Writes the figures of bench/recipes.py into the pages of docs: a row of the table, and a sentence
before and after the line that changes. A part that was not measured stays as it is."""

from __future__ import annotations

import os
import platform
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from figures import number
from marks import Marks
from recipe_list import RECIPES, Recipe

from headway.output.metadata import cpu_model

DOCS = Path(__file__).resolve().parent.parent / "docs"
INDEX = DOCS / "how-to" / "recipes" / "index.md"
MARKS = Marks("bench-recipes")
BEFORE, AFTER = "before", "after"
LINE_LENGTH = 120


class Row(NamedTuple):
    p50_ms: float
    p99_ms: float
    max_ms: float
    heavy_per_s: float

    def sentence(self, recipe: Recipe) -> str:
        return (
            f"{recipe.light} takes {number(self.p50_ms)} ms in the median, "
            f"{number(self.p99_ms)} ms at the 99th percentile, {number(self.max_ms)} ms at most, "
            f"alongside {number(self.heavy_per_s)} {recipe.heavy} a second"
        )


class Measured(NamedTuple):
    """`ratio` is how many times the p99 before is the p99 after."""

    recipe: Recipe
    versions: str
    before: Row
    after: Row
    ratio: float

    def table_row(self) -> str:
        recipe = self.recipe
        link = os.path.relpath(DOCS / recipe.path, INDEX.parent)
        cells = (
            f"[{recipe.title}]({link})",
            self.versions,
            f"{number(self.before.p99_ms)} ms",
            f"{number(self.after.p99_ms)} ms",
            f"{number(self.ratio)}",
            f"`{recipe.shown}`",
        )
        return f"| {' | '.join(cells)} |"

    def sentences(self) -> dict[str, str]:
        recipe = self.recipe
        where = (
            f"`bench/recipes.py --recipe {recipe.name}`, {self.versions}, CPython "
            f"{platform.python_version()}, {len(os.sched_getaffinity(0))} cores ({cpu_model()}), "
            f"{time.strftime('%Y-%m-%d')}"
        )
        return {
            BEFORE: wrapped(f"Without Headway {self.before.sentence(recipe)}."),
            AFTER: wrapped(f"With the policy {self.after.sentence(recipe)} ({where})."),
        }


def wrapped(text: str) -> str:
    return textwrap.fill(text, LINE_LENGTH, break_long_words=False, break_on_hyphens=False)


def check(recipes: Sequence[Recipe]) -> None:
    """Raises ProgramError if a part that would be written is not marked."""
    index = INDEX.read_text()
    for recipe in recipes:
        MARKS.find(index, "table")
        text = (DOCS / recipe.path).read_text()
        for name in (BEFORE, AFTER):
            MARKS.find(text, name)


def write(rows: Sequence[Measured]) -> None:
    for each in rows:
        page = DOCS / each.recipe.path
        text = page.read_text()
        for name, sentence in each.sentences().items():
            text = MARKS.replace(text, name, sentence)
        page.write_text(text)
    index = INDEX.read_text()
    begin, end = MARKS.find(index, "table")
    INDEX.write_text(MARKS.replace(index, "table", table(index[begin:end], rows)))


def table(former: str, rows: Sequence[Measured]) -> str:
    """The table with the rows that were measured, in the order of RECIPES."""
    lines = former.strip().splitlines()
    head, kept = lines[:2], lines[2:]
    measured = {each.recipe.name: each.table_row() for each in rows}
    found = []
    for recipe in RECIPES:
        start = f"| [{recipe.title}]("
        old = [line for line in kept if line.startswith(start)]
        found += [measured[recipe.name]] if recipe.name in measured else old
    return "\n".join([*head, *found])
