"""The claims of the page about gunicorn: the hooks of gunicorn.conf.py and the commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from launch import report_in
from recipe_list import Recipe, named
from recipe_run import Tool
from recipe_tool import ROOT, tool_of, visit

pytestmark = pytest.mark.slow("starts gunicorn")

GUNICORN = named("gunicorn")


def hooks(name: str) -> str:
    """The block of Python on the page that defines the hook."""
    page = (ROOT / "docs" / GUNICORN.path).read_text()
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (block,) = (each for each in blocks if f"def {name}(" in each)
    return block


def configured(folder: Path, configuration: str, *options: str) -> Recipe:
    """gunicorn with this gunicorn.conf.py."""
    file = folder / "gunicorn.conf.py"
    file.write_text(configuration)
    command = " ".join([GUNICORN.command, "--config", str(file), *options])
    return GUNICORN._replace(command=command)


def output_after_visits(tool: Tool) -> str:
    visit(tool)
    assert tool.stop() == 0, tool.output()
    return tool.output()


def test_the_variable_reports_on_the_master_and_its_worker() -> None:
    with tool_of(GUNICORN, "priority,report") as tool:
        report = report_in(output_after_visits(tool))
    assert "policy priority" in report
    assert re.search(r"^pid \d+ ", report, re.MULTILINE), report


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["", "preload"])
def test_post_fork_installs_the_policy_in_each_worker(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    recipe = configured(tmp_path, hooks("post_fork"), *options)
    with tool_of(recipe, "") as tool:
        report = report_in(output_after_visits(tool))
    assert "policy priority" in report
    # The worker's own report, by the threads that answer.
    assert "ThreadPoolExecutor" in report, report


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["", "preload"])
def test_when_ready_makes_one_report_of_all_workers(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    recipe = configured(tmp_path, hooks("when_ready"), "--workers", "2", *options)
    with tool_of(recipe, "") as tool:
        report = report_in(output_after_visits(tool))
    assert "policy priority" in report
    # The master and the workers, of which the one whose threads waited most has the tables.
    assert len(re.findall(r"^pid \d+ ", report, re.MULTILINE)) == 3, report
    assert "ThreadPoolExecutor" in report, report


def test_headway_run_reports_too() -> None:
    command = f"headway run --policy priority -m {GUNICORN.command}"
    with tool_of(GUNICORN._replace(command=command), "") as tool:
        report = report_in(output_after_visits(tool))
    assert "policy priority" in report
    assert re.search(r"^pid \d+ ", report, re.MULTILINE), report
