"""The claims of the page about Django's management commands."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_tool import tool_of

pytestmark = pytest.mark.slow("runs a management command for some seconds")


def test_the_report_names_the_threads_of_the_command() -> None:
    with tool_of(named("django"), "priority,report") as tool:
        assert tool.latencies()["p50_s"] > 0
        report = report_in(tool.output())
    assert "policy priority" in report
    for name in ("MainThread", "reports-0", "reports-1"):
        assert name in report
