"""The statements of the page about Prefect."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_tool import tool_of

pytestmark = pytest.mark.slow("starts Prefect and its temporary server")


def test_the_report_names_the_event_loop_and_the_task_runner() -> None:
    with tool_of(named("prefect"), "priority,report") as tool:
        tool.latencies()
        report = report_in(tool.output())
    assert "policy priority" in report
    assert "GlobalEventLoopThread" in report
    assert "ThreadPoolExecutor" in report
