"""The claims of the page about FastAPI."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_run import reports
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
    """The process that answers is a child of the command's process, and has the policy too."""
    recipe = FASTAPI._replace(command=f"{FASTAPI.command} --workers 2")
    with tool_of(recipe, "priority,follow", reports=True) as tool:
        visit(tool)
        assert tool.stop() == 0, tool.output()
        found = reports(tool.place)
    answering = [
        report
        for report in found
        if any(thread.name.startswith("AnyIO worker thread") for thread in report.threads)
    ]
    assert answering, [report.pid for report in found]
    assert all(report.pid != tool.pid for report in answering)
    assert {report.policy for report in found} == {"priority"}
