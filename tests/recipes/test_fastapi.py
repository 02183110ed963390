"""The claims of the page about FastAPI."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_tool import tool_of, visit

pytestmark = pytest.mark.slow("starts FastAPI on uvicorn")

FASTAPI = named("fastapi")


def test_the_report_names_the_event_loop_and_the_threads() -> None:
    with tool_of(FASTAPI, "priority,report") as tool:
        visit(tool)
        tool.stop()
        report = report_in(tool.output())
    assert "policy priority" in report
    assert "MainThread" in report
    assert "AnyIO worker thread" in report


def test_the_processes_of_workers_need_follow() -> None:
    recipe = FASTAPI._replace(command=f"{FASTAPI.command} --workers 2")
    with tool_of(recipe, "priority,follow,report") as tool:
        visit(tool)
        assert tool.stop() == 0, tool.output()
        report = report_in(tool.output())
    assert "policy priority" in report
    assert report.count("\npid ") >= 2, report
