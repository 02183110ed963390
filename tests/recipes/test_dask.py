"""The statements of the page about Dask."""

from __future__ import annotations

import pytest
from launch import report_in
from recipe_list import named
from recipe_run import reports, running_client
from recipe_tool import tool_of

from headway.report.model import GilReport

pytestmark = pytest.mark.slow("starts Dask")

DASK = named("dask")
COMPUTING = "Dask-Default-Threads"


def reports_of(value: str) -> list[GilReport]:
    with tool_of(DASK, value, reports=True) as tool:
        with running_client(DASK, tool.place) as client:
            client.latencies()
        assert tool.stop() == 0, tool.output()
        return reports(tool.place)


def runs_tasks(report: GilReport) -> bool:
    return any(thread.name.startswith(COMPUTING) for thread in report.threads)


def test_the_worker_of_a_nanny_needs_follow() -> None:
    assert not any(map(runs_tasks, reports_of("priority")))
    (worker,) = filter(runs_tasks, reports_of("priority,follow"))
    assert worker.policy == "priority"
    assert "MainThread" in [thread.name for thread in worker.threads]


def test_without_a_nanny_the_report_is_on_stderr() -> None:
    recipe = DASK._replace(command=f"{DASK.command} --no-nanny")
    with tool_of(recipe, "priority,report") as tool:
        with running_client(recipe, tool.place) as client:
            client.latencies()
        assert tool.stop() == 0, tool.output()
        report = report_in(tool.output())
    assert "policy priority" in report
    assert "MainThread" in report
    assert COMPUTING in report
