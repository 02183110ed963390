"""The claims of the page about pytest, beside tests/test_pytest_plugin.py."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_run import a_place, running
from recipe_tool import BIN, SECONDS, need

pytestmark = pytest.mark.slow("runs a suite for some seconds")

PYTEST = named("pytest")


def test_the_report_names_the_service_and_the_background_work() -> None:
    need(PYTEST.packages)
    recipe = PYTEST._replace(command=PYTEST.changed)
    with a_place(BIN, SECONDS) as place, running(recipe, place, "") as tool:
        assert tool.latencies()["p50_s"] > 0
        report = report_in(tool.output())
    assert "policy priority" in report
    for name in ("MainThread", "service", "background work"):
        assert name in report
