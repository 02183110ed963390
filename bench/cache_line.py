"""The round trip of a cache line between two cores: `programs/cache_line.c`.

A handoff of the GIL moves some fifteen cache lines. On a virtual machine the time of one may change
within seconds, as the host moves the virtual cores.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
from functools import cache

from places import PROGRAMS

from headway.programs.processes import NS

PATIENCE_S = 20


@cache
def _built() -> tempfile.TemporaryDirectory[str]:
    """A folder with the program, which exists as long as this process."""
    folder = tempfile.TemporaryDirectory()
    source = str(PROGRAMS / "cache_line.c")
    _run("cc", "-O2", "-o", f"{folder.name}/cache_line", source, "-lpthread")
    return folder


def _run(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def round_trip_s() -> float:
    """Between the first and the last core that this process may use; NaN if there is only one, or
    no C compiler."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return math.nan
    found = _run(f"{_built().name}/cache_line", str(cores[0]), str(cores[-1]))
    return float(found) / NS if found else math.nan
