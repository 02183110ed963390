"""One round of one cell of an echo server: its client, and its CPU-bound threads or processes.

Everything runs in processes of its own. Right before a cell with CPU-bound work, one thread
computes alone for a while, since what it gets done depends on the machine's mood. Knows nothing of
rounds or of what the figures are held to.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, NamedTuple

from figures import percentile, ratio

from headway.bench.processes import NS, STOCK, BenchmarkError, Program, Setting, Window, program

WARM_UP_S = 0.3
ALONE_WARM_UP_S = 0.1
ALONE_SHARE = 0.5  # of a cell's seconds


class Cell(NamedTuple):
    """`mode` is where the CPU-bound work runs: in the server's "threads", or in "processes"."""

    cpu_threads: int
    mode: str
    setting: Setting

    @property
    def row(self) -> str:
        return self.setting.name if self.mode == "threads" else self.mode

    def parameters(self) -> dict[str, Any]:
        return {
            "cpu_threads": self.cpu_threads,
            "mode": self.mode,
            **self.setting.parameters(),
        }

    def __str__(self) -> str:
        return f"{self.cpu_threads} CPU-bound, {self.row}"


def measure(cell: Cell, seconds: float, server: str) -> dict[str, float]:
    """The figures of one window; `server` is a program of bench/programs/."""
    alone_per_s = work_alone(seconds * ALONE_SHARE) if cell.cpu_threads else math.nan
    with ExitStack() as running:
        in_server = cell.cpu_threads if cell.mode == "threads" else 0
        arguments = (str(in_server), str(cell.setting.switch_interval_s))
        serving = running.enter_context(program(cell.setting, server, *arguments))
        workers = [
            running.enter_context(program(STOCK, "computation", "1"))
            for _ in range(cell.cpu_threads - in_server)
        ]
        port = serving.answer()["port"]
        client = running.enter_context(program(STOCK, "echo_client", str(port)))
        for ready in (*workers, client):
            ready.answer()
        window = Window.after(WARM_UP_S, seconds)
        for told in (serving, *workers, client):
            told.measure(window)
        figures = requests(client, seconds)
        served, *worked = [worker.answer() for worker in (serving, *workers)]
    if cell.cpu_threads:
        done_per_s = sum(answer["work_per_s"] for answer in (served, *worked))
        figures["work_share"] = ratio(done_per_s, alone_per_s)
    if served["gil"] is not None:
        figures.update(gil_shares(served["gil"], cell.setting))
    return figures


def work_alone(seconds: float) -> float:
    """What one CPU-bound thread gets done a second with nothing else in its process."""
    with program(STOCK, "computation", "1") as worker:
        worker.answer()
        worker.measure(Window.after(ALONE_WARM_UP_S, seconds))
        done_per_s: float = worker.answer()["work_per_s"]
    return done_per_s


def requests(client: Program, seconds: float) -> dict[str, float]:
    latencies_s = [latency_ns / NS for latency_ns in client.answer()["latencies_ns"]]
    return {
        # The last response came after the window's end.
        "requests_per_s": (len(latencies_s) - 1) / seconds,
        "p50_s": percentile(latencies_s, 0.5),
        "p99_s": percentile(latencies_s, 0.99),
        "max_s": max(latencies_s, default=math.nan),
    }


def gil_shares(report: dict[str, Any], setting: Setting) -> dict[str, float]:
    """How the main GIL's time in the window divides, from the GIL report of the server."""
    if report["policy"] != setting.policy:
        raise BenchmarkError(f"the server ran under {report['policy']}, not {setting.policy}")
    main = next(gil for gil in report["gils"] if gil["name"] == "main")
    rows = [row for row in report["threads"] if row["gil"] == main["id"]]
    computed = sum(row["held"] for row in rows if row["name"].startswith("compute"))
    return {
        "io_held_share": (main["held"] - computed) / main["wall"],
        "handoff_share": main["handoff"] / main["wall"],
    }
