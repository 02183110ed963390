"""Each recipe's tool runs under the policy that its page turns on, and its page has the command."""

from __future__ import annotations

import re
import signal

import pytest
from recipe_list import RECIPES, Recipe
from recipe_run import reports, running_client
from recipe_tool import ROOT, tool_of, visit

DOCS = ROOT / "docs"
HEADINGS = ["Problem", "The line to change", "Result", "Limits"]

each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


@pytest.mark.slow("starts the real tool of each recipe")
@each_recipe
def test_every_process_of_the_tool_runs_under_the_policy(recipe: Recipe) -> None:
    with tool_of(recipe, recipe.metered, reports=True) as tool:
        if recipe.is_job:
            assert tool.latencies()["p50_s"] > 0
        elif recipe.client:
            with running_client(recipe, tool.place) as client:
                assert client.latencies()["p50_s"] > 0
        else:
            visit(tool)
        if not recipe.is_job:
            assert tool.stop() in (0, -signal.SIGTERM), tool.output()
        found = reports(tool.place)
        assert found, tool.output()
        assert {report.policy for report in found} == {recipe.value.split(",")[0]}
        # The threads that serve and those that compute are in them.
        assert any(len(report.threads) > 1 for report in found)


@each_recipe
def test_the_page_follows_the_template(recipe: Recipe) -> None:
    page = (DOCS / recipe.path).read_text()
    headings = re.findall(r"^##+ (.*)$", page, re.MULTILINE)
    assert [each for each in headings if each in HEADINGS] == HEADINGS
    assert f"$ {recipe.shown}\n" in page
