"""The statements of the page about APScheduler."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_tool import tool_of

pytestmark = pytest.mark.slow("starts APScheduler")


def test_the_report_names_the_scheduler_and_the_pool() -> None:
    with tool_of(named("apscheduler"), "priority,report") as tool:
        tool.latencies()
        report = report_in(tool.output())
    assert "policy priority" in report
    assert "APScheduler" in report
    assert "ThreadPoolExecutor" in report
