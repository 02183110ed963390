"""One value of `wsgi`: starts a server, puts it under load and measures its use of resources.

The clients are a process of their own (`programs/http_load.py`). This module does not know how rows
were chosen, or how values are used.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from headway.programs import process_tree
from headway.programs.processes import NS, ProgramError, Window
from headway_lab.experiment import Measured
from headway_lab.measured.wsgi.reports import Reports
from headway_lab.measured.wsgi.server import Served, Shape, serving
from headway_lab.setting import STOCK, Setting, program

CONNECTIONS = 10
# Two readings are valid for `seconds` if the time between them is at least this share of it, and at
# most its reciprocal.
IN_TIME = 0.8


def work_s(setting: Setting, loops: int) -> float:
    """The time that one thread takes for this number of loops."""
    with program(setting, "wsgi_page", str(loops)) as page:
        seconds: float = page.answer()["seconds"]
    return seconds


def load_server(
    shape: Shape, path: str, fixed_loops: int, warm_up_s: float, seconds: float
) -> Measured:
    """Requests a minute. The server has ended before its last reports are read."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as name:
        folder = Path(name)
        # If root starts Apache, its processes belong to another user.
        folder.chmod(0o755)
        socket = folder / "reports"
        with (
            Reports(socket) as reports,
            serving(shape, folder, socket, fixed_loops) as served,
        ):
            workers = reports.wait_for_workers(served)
            window, answer, used = load(served, workers, path, warm_up_s, seconds)
        reported, waits_s = reports.figures(shape, window)
    latencies_s = sorted(answer["latencies_s"])
    if not latencies_s:
        raise ProgramError(f"{shape} answered nothing; {answer['errors']} requests failed")
    figures = {
        **reported,
        **used,
        "errors": float(answer["errors"]),
        "client_p50_s": median(latencies_s),
        "client_p99_s": latencies_s[int(0.99 * (len(latencies_s) - 1))],
        "client_cpu_share": answer["cpu_s"] / (warm_up_s + seconds),
    }
    return Measured(60 * len(latencies_s) / seconds, figures, waits_s)


def load(
    served: Served, workers: list[int], path: str, warm_up_s: float, seconds: float
) -> tuple[Window, dict[str, Any], dict[str, float]]:
    """The window, the clients' answers about it, and the resources that the server used within
    it."""
    words = (str(served.port), path, str(CONNECTIONS))
    with program(STOCK, "http_load", *words) as clients:
        clients.answer()
        # Finding processes takes long on a busy machine; reading those that are known does not.
        pids = list(process_tree.tree(served.pid))
        window = Window.after(warm_up_s, seconds)
        clients.measure(window)
        sleep_until(window.begin_ns)
        first = look_at(pids, served)
        sleep_until(window.end_ns)
        last = look_at(pids, served)
        answer = clients.answer()
    used = memory(last.stats, workers)
    between_s = time_between(first, last, seconds)
    if between_s is not None:
        used |= processor_time(first.stats, last.stats, workers, between_s)
    return window, answer, used


class Look(NamedTuple):
    """A reading, taken at some time between `began_s` and `ended_s`."""

    began_s: float
    ended_s: float
    stats: dict[int, list[str]]


def look_at(pids: Iterable[int], served: Served) -> Look:
    began_s = time.monotonic()
    try:
        stats = {pid: process_tree.stat(pid) for pid in pids}
    except (FileNotFoundError, ProcessLookupError):
        served.fail("lost one of its processes")
    return Look(began_s, time.monotonic(), stats)


def time_between(first: Look, last: Look, seconds: float) -> float | None:
    """The time between two readings. None if it differs too much from `seconds`: this process had
    no processor at the time of a reading, which then misses a part of the load or includes time
    after it."""
    shortest_s, longest_s = last.began_s - first.ended_s, last.ended_s - first.began_s
    if shortest_s < IN_TIME * seconds or longest_s > seconds / IN_TIME:
        return None
    return (shortest_s + longest_s) / 2


# Processor time and memory of the serving processes, and of all processes, including a supervisor
# or Apache's own process.


def processor_time(
    before: dict[int, list[str]], after: dict[int, list[str]], workers: list[int], seconds: float
) -> dict[str, float]:
    def cores(pids: Iterable[int]) -> float:
        used_s = sum(
            process_tree.used_s(after[pid]) - process_tree.used_s(before[pid]) for pid in pids
        )
        return used_s / seconds

    return {"cpu_per_process": cores(workers) / len(workers), "cpu_total": cores(after)}


def memory(found: dict[int, list[str]], workers: list[int]) -> dict[str, float]:
    def rss_bytes(pids: Iterable[int]) -> int:
        pages = sum(int(found[pid][process_tree.RSS_PAGES]) for pid in pids)
        return pages * process_tree.PAGE_BYTES

    return {
        "rss_bytes": float(rss_bytes(found)),
        "rss_per_process": rss_bytes(workers) / len(workers),
    }


def sleep_until(time_ns: int) -> None:
    time.sleep(max(0, time_ns - time.monotonic_ns()) / NS)
