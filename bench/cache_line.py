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
from pathlib import Path

from places import PROGRAMS

from headway.experiments.processes import BenchmarkError

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
    except FileNotFoundError:
        raise BenchmarkError(f"there is no {command[0]}", 2) from None
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"{Path(command[0]).name}: {error.stderr.strip()}") from None
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{command[0]} did not end within {PATIENCE_S} s") from None


def round_trip_ns() -> float:
    """Between the first and the last core that this process may use; NaN if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return math.nan
    return float(_run(f"{_built().name}/cache_line", str(cores[0]), str(cores[-1])))
