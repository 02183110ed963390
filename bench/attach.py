"""`headway attach` on the tools that people run, under their load: measured, cured, detached.

Each tool of bench/recipes.py starts as its own documentation starts it, and its users come in five
windows, one after the other:

  before      nothing of Headway is in the process
  attaching   `headway attach --tree --policy priority --keep` comes in the midst
  with        the policy is on
  detaching   `headway detach --tree` comes in the midst
  after       the process has CPython's own rule again

The largest latency of *attaching* is above all the pause that the command makes. A request that
fails ends the benchmark, and so does a process of the tool that ends. One that meets the end of an
idle connection is sent again and counted: gunicorn closes a connection that was idle for two
seconds, of which the process may have stood still for one. A tool that ends by itself (a management
command) has three windows. It is started anew for each, and attached to in its first third.
.venvs/recipes/bin/python runs it, once scripts/recipes has made that environment.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import sitting
from figures import Figures, number, table
from recipe_list import RECIPES, Recipe, named
from recipe_run import VARIABLE, Place, Tool, a_place, running, running_client
from recipes import installed, versions
from visits import WARM_UP_S, visit

from headway.programs import process_tree
from headway.programs.processes import ProgramError

NAME = "attach"
BIN = Path(sys.executable).parent
WINDOWS = ("before", "attaching", "with", "detaching", "after")
WINDOWS_OF_JOB = ("before", "with", "after")
MEASURED = ("uvicorn", "gunicorn", "django", "celery", "jupyter")
LIGHT_PER_S = 200.0
CONNECTIONS = 64
HEAVY_VISITORS = 2
TIMEOUT_S = 60.0
ATTACHED = re.compile(r"attached to process .* in ([0-9.]+) (s|ms);")
HEADINGS = (
    "tool",
    "versions",
    "window",
    "p50 ms",
    "p99 ms",
    "max ms",
    "heavy/s",
    "resent",
    "command ms",
)


class Cell(NamedTuple):
    recipe: str
    window: str

    def parameters(self) -> dict[str, Any]:
        return {"recipe": self.recipe, "window": self.window}

    def __str__(self) -> str:
        return f"{self.recipe}, {self.window}"


def command(*words: str) -> dict[str, float]:
    """Runs `headway attach` or `detach`. Returns how long the way into the process took."""
    began_s = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "headway", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise ProgramError(f"headway {' '.join(words)}: {ended.stderr.strip()}")
    found = ATTACHED.search(ended.stderr)
    if found is None:
        return {"command_s": time.monotonic() - began_s}
    return {"command_s": float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)}


def attach(pid: int) -> dict[str, float]:
    return command("attach", str(pid), "--tree", "--policy", "priority", "--keep", "--for", "0.5s")


def detach(pid: int) -> dict[str, float]:
    return command("detach", str(pid), "--tree")


def windows_of(recipe: Recipe) -> tuple[str, ...]:
    return WINDOWS_OF_JOB if recipe.is_job else WINDOWS


def users(recipe: Recipe, place: Place) -> dict[str, float]:
    """Returns the figures that the tool's users see in a window."""
    if not recipe.client:
        return visit(place.port, LIGHT_PER_S, CONNECTIONS, HEAVY_VISITORS, place.seconds)
    with running_client(recipe, place) as client:
        return client.latencies()


def window(
    recipe: Recipe, place: Place, tool: Tool, action: Callable[[int], dict[str, float]] | None
) -> dict[str, float]:
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(users, recipe, place)
        found: dict[str, float] = {}
        if action is not None:
            time.sleep(WARM_UP_S + place.seconds / 3)
            found = action(tool.pid)
        return coming.result() | found


def measure_service(recipe: Recipe, seconds: float) -> Iterator[dict[str, float]]:
    actions = (None, attach, None, detach, None)
    with a_place(BIN, seconds) as place, running(recipe, place, "") as tool:
        # Jupyter's kernel is there once its client has come.
        processes: set[int] = set()
        for each, action in zip(WINDOWS, actions, strict=True):
            try:
                yield window(recipe, place, tool, action)
            except ProgramError as error:
                raise ProgramError(f"{recipe.name}, {each}: {error}") from error
            processes = processes or set(process_tree.tree(tool.pid))
            if set(process_tree.tree(tool.pid)) != processes:
                raise ProgramError(f"{recipe.name}, {each}: its processes are not those of before")
        tool.stop()


def measure_job(recipe: Recipe, seconds: float) -> Iterator[dict[str, float]]:
    """The job's own figures, of its whole run."""
    for actions in ((), (attach,), (attach, detach)):
        with a_job(recipe, seconds) as job:
            found: dict[str, float] = {}
            for action in actions:
                found = action(job.pid)
            yield job.latencies() | found


@contextmanager
def a_job(recipe: Recipe, seconds: float) -> Iterator[Tool]:
    """A job that has begun to work."""
    with a_place(BIN, seconds) as place, running(recipe, place, "") as job:
        time.sleep(seconds / 3)
        yield job


class Tooled(NamedTuple):
    """A tool, which a round measures in all its windows."""

    recipe: str

    def __str__(self) -> str:
        return self.recipe


def measure_tool(tool: Tooled, seconds: float) -> list[dict[str, float]]:
    recipe = named(tool.recipe)
    return list((measure_job if recipe.is_job else measure_service)(recipe, seconds))


def print_table(figures: Figures[Cell], recipes: Sequence[Recipe]) -> None:
    lines = []
    for recipe in recipes:
        for each in windows_of(recipe):
            cell = Cell(recipe.name, each)
            shown = (
                figures.median(cell, "p50_s") * 1e3,
                figures.median(cell, "p99_s") * 1e3,
                figures.highest(cell, "max_s") * 1e3,
                figures.median(cell, "heavy_per_s"),
                figures.highest(cell, "resent"),
                figures.median(cell, "command_s") * 1e3,
            )
            lines.append((recipe.name, versions(recipe), each, *map(number, shown)))
    print(table(HEADINGS, lines, names=3))
    print(
        "p50, p99: medians over rounds; max: of all. An HTTP server has "
        f"{LIGHT_PER_S:g} light requests/s\n"
        f"beside {HEAVY_VISITORS} visitors of the heavy page; latencies count from the intended "
        "start.\nresent: requests that met the end of an idle connection. command ms: until attach "
        "measures,\nand until detach has ended.\n"
    )


def measure(options: argparse.Namespace) -> sitting.Experiments:
    if options.policy:
        raise ProgramError("--policy: found one, where each tool is cured by priority", 2)
    os.environ.pop(VARIABLE, None)
    recipes = installed(map(named, options.recipe or MEASURED))
    figures: Figures[Cell] = Figures()
    tools = [Tooled(each.name) for each in recipes]
    measure_with = partial(measure_tool, seconds=options.seconds)
    for tool, found in sitting.rounds(NAME, options.rounds, tools, measure_with):
        for each, of_window in zip(windows_of(named(tool.recipe)), found, strict=True):
            figures.record(Cell(tool.recipe, each), **of_window)
    print_table(figures, recipes)
    return figures.experiments(NAME, Cell.parameters, [])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=3, seconds=6.0, quick_seconds=2.0, policies=())
    parser.add_argument(
        "--recipe",
        action="append",
        choices=[each.name for each in RECIPES if each.name != "pytest"],
        metavar="NAME",
        help="measure this one; may be given again (default: " + ", ".join(MEASURED) + ")",
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
