"""Each function of `headway._native`, called with arguments that it does not expect: it may raise,
and must not end the process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launch import PROGRAMS, python

from headway import _native

pytestmark = [pytest.mark.free_threading, pytest.mark.slow("thousands of calls of each function")]

# They end the process, or change it for the calls that follow, as they should.
OTHERS = {"process_end_with_parent", "report_on_signals", "report_after_exec"}


@pytest.mark.parametrize("installed", [False, True], ids=["not installed", "installed"])
def test_no_function_ends_the_process(installed: bool, tmp_path: Path) -> None:
    names = {name for name in dir(_native) if callable(getattr(_native, name))}
    names = {name for name in names if not name.startswith("_")} - OTHERS
    program = PROGRAMS / "odd_arguments.py"
    # Functions make files of the names that they get.
    result = python(program, str(int(installed)), *sorted(names), cwd=tmp_path, timeout=110)
    assert result.returncode == 0, result.stderr
    ends = json.loads(result.stdout)
    assert ends == dict.fromkeys(sorted(names), 0), result.stderr[-3000:]
