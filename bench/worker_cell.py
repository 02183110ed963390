"""One cell about worker processes: a server under the load of wrk, and what its processes use.

Headway's supervisor serves nothing and is the same in every shape: CPU time and memory are those of
the workers, and memory with the supervisor is an additional figure. RSS counts shared memory, such
as CPython's own code, once per process; PSS divides it among all processes that map it, so the sum
of PSS over a server's processes is what they occupy. Other programs on the same Python take a part
of the shared memory of every server alike.
"""

from __future__ import annotations

import argparse
import statistics
from functools import reduce
from pathlib import Path

import load_cell
import wrk
from figures import Figures, number
from installed import Installed
from load_cell import Cell
from places import PROGRAMS
from serving import Served, serving

from headway.programs import process_tree
from headway.programs.processes import Window
from headway_lab.setting import started

# The legend of a table for the columns that come from this module.
LEGEND = (
    "Medians over rounds, with their range; ratios round by round. CPU: in cores. Memory: the\n"
    "worker processes'; RSS counts what they share for each of them, PSS once in all."
)
ALONE_S = 0.3
ALONE_WARM_UP_S = 0.1


def measure(
    cell: Cell, installed: Installed, fixed_loops: int, options: argparse.Namespace
) -> dict[str, float]:
    environment = {"FIXED_LOOPS": str(fixed_loops)}
    with serving(cell.server, cell.application, installed.bin, **environment) as served:
        if cell.application == "pages":
            served.check_interpreters()
        wrk.load(served.port, cell.path, load_cell.WARM_UP_S)
        return weigh(served, cell.path, options.seconds)


def weigh(served: Served, path: str, seconds: float) -> dict[str, float]:
    before = served.workers()
    load = wrk.load(served.port, path, seconds)
    cores = [
        (process_tree.used_s(fields) - process_tree.used_s(before[pid])) / load.duration_s
        for pid, fields in served.workers().items()
    ]
    memory = reduce(process_tree.Memory.__add__, map(process_tree.memory, before))
    with_supervisor = memory + process_tree.memory(served.pid)
    return {
        "requests_per_s": load.requests / load.duration_s,
        "p50_s": load.p50_s,
        "p99_s": load.p99_s,
        "cores_per_process": statistics.mean(cores),
        "cores": sum(cores),
        "pss_bytes": float(memory.pss_bytes),
        "rss_bytes": float(memory.rss_bytes),
        "pss_with_supervisor_bytes": float(with_supervisor.pss_bytes),
        "rss_with_supervisor_bytes": float(with_supervisor.rss_bytes),
    }


def with_supervisor_text(figures: Figures[Cell], cell: Cell) -> str:
    """PSS and RSS with the supervisor in MB, as a table shows them."""
    kinds = ("pss_with_supervisor_bytes", "rss_with_supervisor_bytes")
    return ", ".join(number(figures.median(cell, kind) / 1e6) for kind in kinds)


def alone_cpu_s(python: Path, free_threading: bool, fixed_loops: int) -> float:
    """CPU time of one thread for what `fixed` computes, without its wait and without a server."""
    words = [str(python), *(("-X", "gil=0") if free_threading else ())]
    words += [str(PROGRAMS / "page_alone.py"), str(fixed_loops)]
    with started(words, "page_alone.py") as program:
        program.answer()
        program.measure(Window.after(ALONE_WARM_UP_S, ALONE_S))
        cpu_per_work_s: float = program.answer()["cpu_per_work_s"]
    return cpu_per_work_s
