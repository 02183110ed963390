"""The recipes of docs/how-to/recipes: latency of light work beside heavy work, in the tools that
people use, before and after the line that changes.

Before is the tool as its own documentation starts it, after is the same command with HEADWAY in the
environment. A round measures each tool both ways, one after the other. The reports that the tool's
processes write at their end prove that the policy was active in each of them. A tool that is not
installed (scripts/recipes) is named and left out.

--write puts the figures into the table and the sentences of the pages.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import recipe_pages
import sitting
from figures import Figures, number, table
from recipe_list import RECIPES, Recipe, named
from recipe_run import VARIABLE, a_place, reports, running, running_client, with_reports
from visits import visit

from headway.programs.processes import ProgramError

NAME = "recipes"
BIN = Path(sys.executable).parent
LIGHT_PER_S = 50.0
CONNECTIONS = 64
HEAVY_VISITORS = 2

HEADINGS = (
    "recipe",
    "versions",
    "row",
    "p50 ms",
    "p99 ms",
    "max ms",
    "heavy/s",
    "p99 before/after",
)


class Cell(NamedTuple):
    recipe: str
    value: str

    def parameters(self) -> dict[str, Any]:
        return {"recipe": self.recipe, "headway": self.value or None}

    def __str__(self) -> str:
        return f"{self.recipe}, {'HEADWAY=' + self.value if self.value else 'before'}"


def before(recipe: Recipe) -> Cell:
    return Cell(recipe.name, "")


def after(recipe: Recipe) -> Cell:
    return Cell(recipe.name, recipe.value)


def versions(recipe: Recipe) -> str:
    """Raises PackageNotFoundError."""
    return ", ".join(f"{package} {metadata.version(package)}" for package in recipe.packages)


def missing(recipe: Recipe) -> str:
    """The reason why the recipe cannot be measured; "" if it can."""
    try:
        versions(recipe)
    except metadata.PackageNotFoundError as error:
        return f"{sys.executable} has no {error.name}: scripts/recipes makes .venvs/recipes"
    return ""


def installed(recipes: Iterable[Recipe]) -> list[Recipe]:
    """Those that can be measured. Names the others; raises ProgramError if none is left."""
    found = []
    for recipe in recipes:
        reason = missing(recipe)
        if reason:
            print(f"{recipe.name} is left out: {reason}")
        else:
            found.append(recipe)
    if not found:
        raise ProgramError("no tool is installed that could be measured", 2)
    return found


def measure_cell(cell: Cell, seconds: float) -> dict[str, float]:
    recipe = named(cell.recipe)
    with a_place(BIN, seconds) as place:
        value = with_reports(recipe.metered, place) if cell.value else ""
        with running(recipe, place, value) as tool:
            if recipe.is_job:
                found = tool.latencies()
            elif recipe.client:
                with running_client(recipe, place) as client:
                    found = client.latencies()
            else:
                found = visit(place.port, LIGHT_PER_S, CONNECTIONS, HEAVY_VISITORS, seconds)
            if not recipe.is_job:
                tool.stop()
        if cell.value:
            policies = {report.policy for report in reports(place)}
            if policies != {cell.value.split(",")[0]}:
                tool.fail(f"has run under {', '.join(policies) or 'no policy that it reports'}")
    return found


def print_table(figures: Figures[Cell], recipes: Sequence[Recipe]) -> None:
    lines = []
    for recipe in recipes:
        for cell in (before(recipe), after(recipe)):
            shown = (
                figures.median(cell, "p50_s") * 1e3,
                figures.median(cell, "p99_s") * 1e3,
                figures.highest(cell, "max_s") * 1e3,
                figures.median(cell, "heavy_per_s"),
                figures.ratio(before(recipe), cell, "p99_s"),
            )
            row = cell.value or "before"
            lines.append((recipe.name, versions(recipe), row, *map(number, shown)))
    print(table(HEADINGS, lines, names=3))
    print(
        "p50, p99: medians over rounds; max: of all. An HTTP server's latencies count from the\n"
        f"intended start, at {LIGHT_PER_S:g} light requests/s beside {HEAVY_VISITORS} visitors of "
        "the heavy page.\nThe last column: median of the ratios round by round.\n"
    )


def measured(figures: Figures[Cell], recipe: Recipe) -> recipe_pages.Measured:
    def row(cell: Cell) -> recipe_pages.Row:
        return recipe_pages.Row(
            p50_ms=figures.median(cell, "p50_s") * 1e3,
            p99_ms=figures.median(cell, "p99_s") * 1e3,
            max_ms=figures.highest(cell, "max_s") * 1e3,
            heavy_per_s=figures.median(cell, "heavy_per_s"),
        )

    ratio = figures.ratio(before(recipe), after(recipe), "p99_s")
    return recipe_pages.Measured(
        recipe, versions(recipe), row(before(recipe)), row(after(recipe)), ratio
    )


def measure(options: argparse.Namespace) -> sitting.Experiments:
    if options.write and options.quick:
        raise ProgramError("--write: found --quick, whose figures are worth nothing", 2)
    if options.policy:
        raise ProgramError("--policy: found one, where each recipe has its own", 2)
    # The tools inherit this process's environment.
    os.environ.pop(VARIABLE, None)
    recipes = installed(map(named, options.recipe) if options.recipe else RECIPES)
    if options.write:
        recipe_pages.check(recipes)
    cells = [cell for recipe in recipes for cell in (before(recipe), after(recipe))]
    figures: Figures[Cell] = Figures()
    measure_with = partial(measure_cell, seconds=options.seconds)
    for cell, found in sitting.rounds(NAME, options.rounds, cells, measure_with):
        figures.record(cell, **found)
    print_table(figures, recipes)
    if options.write:
        recipe_pages.write([measured(figures, recipe) for recipe in recipes])
    return figures.experiments(NAME, Cell.parameters, [])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=5, seconds=10.0, quick_seconds=2.0, policies=())
    parser.add_argument(
        "--recipe",
        action="append",
        choices=[each.name for each in RECIPES],
        metavar="NAME",
        help="measure this one; may be given again (default: all: "
        + ", ".join(each.name for each in RECIPES)
        + ")",
    )
    parser.add_argument(
        "--write", action="store_true", help="also write the figures into docs/how-to/recipes"
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
