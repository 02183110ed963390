"""Builds of CPython: the one that runs the benchmark, and a free-threaded one beside it.

A build is known by its interpreter, which is asked what it is. It knows nothing of peers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from peers import ROOT

from headway.programs.processes import ProgramError

# Where scripts/test and `make bench-server` put Headway for it.
FREE_THREADED_PYTHON = ROOT / ".venvs" / "3.13t" / "bin" / "python"
BUILD_IT = "run LAB=yes scripts/build .venvs/3.13t 3.13t bench/requirements.txt"
# The letter of the ABI of builds that can run without a GIL.
FREE_THREADED = "t" in sys.abiflags

QUESTION = """\
import importlib.util, json, sys
headway = importlib.util.find_spec("headway") is not None
print(json.dumps([sys.version.split()[0] + sys.abiflags, "t" in sys.abiflags, headway]))
"""


class Build(NamedTuple):
    """`version` is that of CPython and its ABI, such as 3.13.5t."""

    python: Path
    version: str


THIS_BUILD = Build(Path(sys.executable), sys.version.split()[0] + sys.abiflags)


def free_threaded_build(python: Path) -> Build:
    """Raises ProgramError unless it is one, and has Headway."""
    try:
        asked = subprocess.run(
            [str(python), "-c", QUESTION], capture_output=True, text=True, check=True
        )
        version, free_threaded, headway = json.loads(asked.stdout)
    except FileNotFoundError:
        raise ProgramError(f"there is no {python}: {BUILD_IT}", 2) from None
    except (OSError, ValueError, subprocess.CalledProcessError):
        raise ProgramError(f"{python} is not a Python that starts: {BUILD_IT}", 2) from None
    if not free_threaded:
        raise ProgramError(f"{python} is CPython {version}, not a free-threaded build", 2)
    if not headway:
        raise ProgramError(f"{python} has no headway: {BUILD_IT}", 2)
    return Build(python, version)
