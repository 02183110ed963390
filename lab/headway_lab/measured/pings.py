"""UDP pings to a thread: how long each waited for the thread, and the figures of many pings.

One process receives them beside threads that compute, and another one sends them. This module does
not know rows or experiments.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from headway.output.statistics import percentile
from headway.programs.processes import NS, ProgramError, Window
from headway_lab.setting import STOCK, Setting, program

WARM_UP_S = 0.2
MS = 1e3

PERCENTILES = {50: "p50_ms", 90: "p90_ms", 99: "p99_ms", 100: "max_ms"}
# A wait is at a multiple of the interval if it is longer by at most this share of the interval.
NEAR_MULTIPLE = 0.2
# A share of fewer waits is not reliable.
LEAST_LONG = 10


def waits(setting: Setting, workload: str, cpu_threads: int, seconds: float) -> list[float]:
    """The wait of each ping that was sent in the window, in seconds. Raises ProgramError if a
    ping was lost."""
    with ExitStack() as running:
        words = (workload, str(cpu_threads), str(setting.switch_interval_s))
        server = running.enter_context(program(setting, "ping_server", *words))
        port = str(server.answer()["port"])
        # The client is the same for all servers.
        client = running.enter_context(program(STOCK, "ping_client", port))
        client.answer()
        window = Window.after(WARM_UP_S, seconds)
        for told in (server, client):
            told.measure(window)
        pings, lost = server.answer()["pings"], client.answer()["lost"]
    found = [wait_ns / NS for sent_ns, wait_ns in pings if sent_ns >= window.begin_ns]
    # Lost pings would be missing among the longest waits.
    if lost or not found:
        what = f"{lost} pings late or never" if lost else "no ping"
        raise ProgramError(f"ping_server.py under {setting.name} received {what}")
    return found


def figures_of(waits_s: Sequence[float], interval_s: float | None) -> dict[str, float]:
    """The figures of a value. Without an interval, those of its multiples are left out."""
    waits_ms = sorted(wait_s * MS for wait_s in waits_s)
    figures = {
        "pings": float(len(waits_ms)),
        "mean_ms": statistics.fmean(waits_ms),
        "std_ms": statistics.pstdev(waits_ms),
        **{name: percentile(waits_ms, percent / 100) for percent, name in PERCENTILES.items()},
    }
    if interval_s is not None:
        long = [wait_s / interval_s for wait_s in waits_s if wait_s >= interval_s]
        if len(long) >= LEAST_LONG:
            figures["at_multiples"] = sum(wait % 1 < NEAR_MULTIPLE for wait in long) / len(long)
    return figures
