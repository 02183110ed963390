"""The tables of `wsgi`, with the published values.

A table has one configuration after another, in the order of the published ones. The published
figures are from a host with about ten cores, so compare the shape: each row's share of 10 x 1. They
are shown only beside `deadline`, the kind of page that reproduces them. Made from `Results` alone.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.output.metadata import STOCK
from headway.output.results import Parameters, Result, Results
from headway.output.table import Cell, Table, cell_of
from headway_lab.measured.wsgi.rows import DEADLINE, FREE_THREADED, GIL, UNSCHEDULED
from headway_lab.measured.wsgi.server import HEADWAY, MOD_WSGI

MS, MB = 1e-3, 1e6


class Published(NamedTuple):
    """A row of seeds 000 and 001: mod_wsgi 6.0, a page of 3 ms of Python, 10 requests at once."""

    rpm: float
    response_s: float
    application_s: float | None = None
    gil_wait_p50_s: float | None = None
    gil_wait_p95_s: float | None = None
    gil_wait_p99_s: float | None = None
    cpu_per_process: float | None = None
    cpu_total: float | None = None
    rss_bytes: float | None = None


# By processes, threads, mode and switch interval.
PUBLISHED = {
    (10, 1, GIL, 0.005): Published(
        134e3, 0.004, 0.0043, cpu_per_process=0.66, cpu_total=6.6, rss_bytes=200e6
    ),
    (2, 5, GIL, 0.005): Published(37e3, 0.016, 0.011, 0.005, 0.013, 0.018, 0.95, 1.9),
    (2, 5, GIL, 0.002): Published(42e3, 0.014, 0.013, None, 0.006, 0.010),
    (2, 5, GIL, 0.0001): Published(121e3, 0.005, 0.0047, None, 0.0012, 0.0012, 0.90, 1.8),
    (2, 5, FREE_THREADED, 0.005): Published(131e3, 0.004, cpu_per_process=3.3, cpu_total=6.6),
    (1, 10, FREE_THREADED, 0.005): Published(
        134e3, 0.004, cpu_per_process=6.65, cpu_total=6.65, rss_bytes=31e6
    ),
}
BASE = PUBLISHED[10, 1, GIL, 0.005]
HEADINGS = (
    "configuration",
    "requests/min",
    "of 10 x 1",
    "response ms",
    "app ms",
    "GIL p50 ms",
    "GIL p95 ms",
    "GIL p99 ms",
    "CPU/process",
    "CPU",
    "RSS MB",
)
NOTES = {
    HEADWAY: "response and app: means; GIL: what a take of it waited; CPU and RSS: with the "
    "supervisor. Without a named policy: interval, CPython's own rule, watched, which is also what "
    "--policy stock means here.",
    MOD_WSGI: "response and app: means; GIL: what a request waited for it at mod_wsgi's own takes; "
    "CPU and RSS: with Apache's own processes.",
}
READING = (
    " Published for about ten cores: 121,000 pages a minute of 3 ms each would be 6 cores of work, "
    "and 1.8 were used, so a page stopped when 3 ms had passed."
)


def published(parameters: Parameters) -> Published | None:
    """There are no other measurements of Headway's policies, and none of a page with fixed work."""
    if parameters["workload"] != DEADLINE or parameters["policy"] not in (STOCK, UNSCHEDULED):
        return None
    names = ("processes", "threads", "mode", "switch_interval")
    processes, threads, mode, interval_s = (parameters[name] for name in names)
    return PUBLISHED.get((processes, threads, mode, interval_s))


def configuration(parameters: Parameters) -> str:
    shape = f"{parameters['processes']} x {parameters['threads']}"
    if parameters["mode"] == FREE_THREADED:
        return f"{shape}, free-threaded"
    interval = f"{shape}, {parameters['switch_interval'] * 1e3:g} ms"
    is_scheduled = parameters["policy"] not in (STOCK, UNSCHEDULED)
    return f"{interval}, {parameters['policy']}" if is_scheduled else interval


def one_thread_each(results: Results) -> Result | None:
    """The baseline of the other rows: no two of its threads share a GIL."""
    found = [each for each in results if each.parameters["threads"] == 1 and each.values]
    return found[0] if found else None


def shape_of(result: Result) -> str:
    return f"{result.parameters['processes']} x {result.parameters['threads']}"


def is_theirs(base: Result) -> bool:
    """Whether the published rows have the same baseline."""
    return (base.parameters["processes"], base.parameters["threads"]) == (10, 1)


def tables(results: Results) -> list[Table]:
    return [
        table(results.where(server=server, workload=workload), server, workload)
        for server in results.distinct("server")
        for workload in results.distinct("workload")
    ]


def table(results: Results, server: str, workload: str) -> Table:
    base = one_thread_each(results)
    return Table(
        f"{server}, workload {workload}",
        HEADINGS if base is None else [*HEADINGS[:2], f"of {shape_of(base)}", *HEADINGS[3:]],
        [line(each, base) for each in results if not each.left_out],
        note=NOTES[server] + (READING if workload == DEADLINE else ""),
    )


def line(result: Result, base: Result | None) -> list[Cell]:
    found = published(result.parameters)
    cells = [
        scaled(cell_of(result, "response_mean_s"), MS, found and found.response_s),
        scaled(cell_of(result, "application_mean_s"), MS, found and found.application_s),
        scaled(cell_of(result, "gil_wait_p50_s"), MS, found and found.gil_wait_p50_s),
        scaled(cell_of(result, "gil_wait_p95_s"), MS, found and found.gil_wait_p95_s),
        scaled(cell_of(result, "gil_wait_p99_s"), MS, found and found.gil_wait_p99_s),
        scaled(cell_of(result, "cpu_per_process"), 1, found and found.cpu_per_process),
        scaled(cell_of(result, "cpu_total"), 1, found and found.cpu_total),
        scaled(cell_of(result, "rss_bytes"), MB, found and found.rss_bytes),
    ]
    if not result.values:
        # The reason is shown once.
        cells = [cell._replace(text="") for cell in cells]
    return [
        Cell(text=configuration(result.parameters)),
        cell_of(result),
        share(result, base),
        *cells,
    ]


def share(result: Result, base: Result | None) -> Cell:
    """The share of the requests of the baseline, round by round."""
    found = published(result.parameters)
    ratio = result.ratio(base) if base is not None else None
    if base is None or ratio is None:
        return Cell(text="")
    return Cell(*ratio, published=found.rpm / BASE.rpm if found and is_theirs(base) else None)


def scaled(cell: Cell, unit: float, published_value: float | None) -> Cell:
    if cell.value is None or cell.low is None or cell.high is None:
        return cell
    return cell._replace(
        value=cell.value / unit,
        low=cell.low / unit,
        high=cell.high / unit,
        published=None if published_value is None else published_value / unit,
    )
