"""Runs programs by `headway run` and by plain `python`, for the tests of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent / "programs"
HEADWAY = (sys.executable, "-m", "headway")
TIMEOUT_S = 60

GIL_ENABLED = getattr(sys, "_is_gil_enabled", lambda: True)()

Result = subprocess.CompletedProcess[str]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what tells Headway, Python or a terminal how to be."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("HEADWAY_", "PYTHON", "COLUMNS", "NO_COLOR"))
    }
    return {**kept, "PYTHONIOENCODING": "utf-8", **changes}


def execute(command: list[str], **options: Any) -> Result:
    options = {"env": environment(), "timeout": TIMEOUT_S, "capture_output": True, **options}
    return subprocess.run(command, text=True, **options)


def python(*arguments: str | Path, **options: Any) -> Result:
    return execute([sys.executable, *map(str, arguments)], **options)


def headway(*arguments: str | Path, **options: Any) -> Result:
    return execute([*HEADWAY, *map(str, arguments)], **options)


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """`headway ARGUMENTS` in the background, with pipes for its output."""
    options = {
        "env": environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **options,
    }
    return subprocess.Popen([*HEADWAY, *map(str, arguments)], text=True, **options)


def report_in(stderr: str) -> str:
    """The report at the end of what `headway run` said; "" if there is none."""
    start_of_line = stderr.rfind("\nheadway  Python ") + 1
    return stderr[start_of_line:] if stderr[start_of_line:].startswith("headway  Python ") else ""


def read_json(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    return report
