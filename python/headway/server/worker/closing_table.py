"""The table at the end of a run: the requests by path, then the times of each GIL. Pure."""

from __future__ import annotations

from headway.report import columns, sentence, units
from headway.report.model import FreeThreading, GilReport, GilRow
from headway.server.worker.serving import PathRow

HEAD = (
    "path",
    "requests",
    "errors",
    "p50",
    "p99",
    "GIL wait p50",
    "p99",
    "total",
    "application",
    "CPU",
)
MAX_PATH_COLUMNS = 40


def draw(rows: list[PathRow], gil_report: GilReport | None) -> str:
    """Returns the table as text that ends with a newline. `gil_report` is the meter's report;
    `None` omits the GILs."""
    if not rows:
        return "No requests were served.\n"
    cells = [HEAD, *(_cells(row) for row in rows)]
    if len({row.interpreter for row in rows}) > 1:
        names = ("interpreter", *(row.interpreter for row in rows))
        cells = [(name, *each) for name, each in zip(names, cells, strict=True)]
    lines = columns.aligned(cells, texts=len(cells[0]) - len(HEAD) + 1)
    if gil_report is not None:
        lines += ["", *_gils(gil_report)]
    return "\n".join(lines) + "\n"


def _cells(row: PathRow) -> tuple[str, ...]:
    path = row.path
    if len(path) > MAX_PATH_COLUMNS:
        path = path[: MAX_PATH_COLUMNS - 1] + "~"
    return (
        path.encode("ascii", "backslashreplace").decode(),
        f"{row.requests:,}",
        f"{row.errors:,}",
        _time(row.response_p50_ns),
        _time(row.response_p99_ns),
        _time(row.gil_wait_p50_ns),
        _time(row.gil_wait_p99_ns),
        _time(row.gil_wait_total_ns),
        _time(row.application_total_ns),
        _time(row.cpu_total_ns),
    )


def _time(ns: int | None) -> str:
    return units.seconds(None if ns is None else ns / 1e9)


def _gils(report: GilReport) -> list[str]:
    if report.gil == "disabled" and not any(gil.takes for gil in report.gils):
        text = "The GIL is disabled (free-threaded): nobody waited for it."
        return [text, *_parks(report.free_threading)]
    lines = []
    for label, gils in _rows(report.gils):
        wall_s = sum(gil.wall_s for gil in gils)
        times = (
            ("held", sum(gil.held_s for gil in gils)),
            ("handoff", sum(gil.handoff_s for gil in gils)),
            ("idle", sum(gil.idle_s for gil in gils)),
        )
        states = ", ".join(
            f"{state} {units.seconds(time_s)} ({units.share(time_s, wall_s)})"
            for state, time_s in times
        )
        lines.append(f"{label} ({gils[0].name}): {states}")
        if report.policy != "interval":
            work = sentence.scheduling(
                sum(gil.preemptions for gil in gils),
                max(gil.longest_wait_io_bound_s or 0.0 for gil in gils) or None,
                max(gil.longest_wait_cpu_bound_s or 0.0 for gil in gils) or None,
            )
            lines.append(f"  policy {report.policy}: {work}")
    stuck = sentence.unanswered(report)
    return [*lines, stuck] if stuck else lines


def _parks(parks: FreeThreading | None) -> list[str]:
    """The line for a process without a GIL; see "parked" in docs/design/words.md. Empty without
    `parks`."""
    if not parks:
        return []
    waits = ", ".join(
        f"{name} {units.seconds(each.sum_s)} ({units.number(each.count, 'wait')})"
        for name, each in (
            ("parked", parks.parked),
            ("suspended", parks.suspended),
            ("stopping", parks.stopping),
        )
    )
    return [f"  CPU {units.seconds(parks.cpu_s)}; {waits}"]


def _rows(gils: list[GilRow]) -> list[tuple[str, list[GilRow]]]:
    """The label and the GILs of each row. Each existing GIL has a row; the GILs of recycled
    interpreters with the same name share a row."""
    rows = [(f"GIL {gil.id}", [gil]) for gil in gils if gil.alive]
    ended: dict[str, list[GilRow]] = {}
    for gil in gils:
        if not gil.alive:
            ended.setdefault(gil.name, []).append(gil)
    return rows + [(units.number(len(same), "ended GIL"), same) for same in ended.values()]
