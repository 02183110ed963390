"""The real tools of the recipes, from .venvs/recipes, which scripts/recipes makes.

A test whose tool is not installed is skipped and names it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from launch import GIL_ENABLED
from recipe_list import Recipe
from recipe_run import Tool, a_place, running, with_reports

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venvs" / "recipes" / "bin"
# How long a job or a client measures.
SECONDS = 2.0

MISSING = """
import sys
from importlib import metadata
for package in sys.argv[1:]:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        print(package)
"""


def need(packages: Sequence[str]) -> None:
    """Skips the test if one of the packages is not installed."""
    if sys.version_info[:2] != (3, 13) or not GIL_ENABLED:
        pytest.skip("the tools are those of CPython 3.13, and run in its tests alone")
    python = BIN / "python"
    if not python.exists():
        pytest.skip("there is no .venvs/recipes: scripts/recipes makes it")
    command = [python, "-c", MISSING, "headway", *packages]
    missing = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if missing:
        pytest.skip(f"{missing[0]} is not in .venvs/recipes: scripts/recipes names the reason")


@contextmanager
def tool_of(recipe: Recipe, value: str, *, reports: bool = False) -> Iterator[Tool]:
    """The recipe's tool, running with `value` in HEADWAY; with `reports`, each of its processes
    writes a report for `recipe_run.reports`."""
    need(recipe.packages)
    with (
        a_place(BIN, SECONDS) as place,
        running(recipe, place, with_reports(value, place) if reports else value) as tool,
    ):
        yield tool


def visit(tool: Tool) -> None:
    """Light requests while two heavy ones are under way; each is answered."""
    with ThreadPoolExecutor(2) as visitors:
        heavy = [visitors.submit(tool.get, "/heavy") for _ in range(2)]
        while not all(each.done() for each in heavy):
            tool.get("/")
        for each in heavy:
            assert each.result().isdigit()
