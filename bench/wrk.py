"""wrk, the load generator: a closed loop of 10 connections from one thread."""

from __future__ import annotations

import json
import math
import resource
import shutil
import subprocess
from typing import NamedTuple

from places import PROGRAMS

from headway.programs.processes import ProgramError, prepare_child

CONNECTIONS = 10
PATIENCE_S = 20
MISSING = "there is no wrk: run bench/install_peers.py"


class Load(NamedTuple):
    """The results of wrk. `cpu_share` is wrk's own: near 1, wrk limits the rate, not the server."""

    requests: int
    duration_s: float
    p50_s: float
    p99_s: float
    cpu_share: float


def check() -> None:
    if shutil.which("wrk") is None:
        raise ProgramError(MISSING, 2)


def load(port: int, path: str, seconds: float, connections: int = CONNECTIONS) -> Load:
    """Requests a page repeatedly, for whole seconds because wrk takes no fractions. Raises
    ProgramError if a request failed, since dropped requests make a server look faster."""
    words = ["wrk", "-t1", f"-c{connections}", f"-d{math.ceil(seconds)}s"]
    words += ["-s", str(PROGRAMS / "wrk_report.lua"), f"http://127.0.0.1:{port}{path}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        ended = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds + PATIENCE_S,
            preexec_fn=prepare_child,
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(f"wrk did not end within {seconds + PATIENCE_S:g} s") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode != 0:
        raise ProgramError(f"wrk: {(ended.stderr or ended.stdout).strip().splitlines()[-1:]}")
    found = json.loads(ended.stdout.splitlines()[-1])
    for kind in ("failed", "not_ok"):
        if found[kind]:
            raise ProgramError(f"{found[kind]} of {found['requests']} requests: {kind}")
    duration_s = found["duration_us"] / 1e6
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Load(
        requests=found["requests"],
        duration_s=duration_s,
        p50_s=found["p50_us"] / 1e6,
        p99_s=found["p99_us"] / 1e6,
        cpu_share=cpu_s / duration_s,
    )
