"""The claims of the page about uvicorn."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_tool import tool_of, visit

pytestmark = pytest.mark.slow("starts uvicorn")


def test_the_report_names_the_event_loop_and_the_threads() -> None:
    with tool_of(named("uvicorn"), "priority,report") as tool:
        visit(tool)
        tool.stop()
        report = report_in(tool.output())
    assert "priority" in report.splitlines()[0]
    assert "MainThread" in report
    assert "AnyIO worker thread" in report
