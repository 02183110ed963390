"""The table at the end of a run: requests by path, then where each GIL's time went. Pure."""

from __future__ import annotations

from typing import Any

from headway.report import summary, units
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
# What adds up over GILs, and what is the most of any.
SUMS = ("wall", "held", "handoff", "idle", "preemptions")
LONGEST = ("longest_wait_io_bound", "longest_wait_cpu_bound")


def draw(rows: list[PathRow], gil_report: dict[str, Any] | None) -> str:
    """Text with a newline at its end. `gil_report` is the meter's report (schema 1) or `None`."""
    if not rows:
        return "No requests were served.\n"
    cells = [HEAD, *(_cells(row) for row in rows)]
    if len({row.interpreter for row in rows}) > 1:
        names = ("interpreter", *(row.interpreter for row in rows))
        cells = [(name, *each) for name, each in zip(names, cells, strict=True)]
    texts = len(cells[0]) - len(HEAD) + 1
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
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


def _gils(report: dict[str, Any]) -> list[str]:
    if report["gil"] == "disabled" and not any(gil["takes"] for gil in report["gils"]):
        said = "The GIL is disabled (free-threaded): nobody waited for it."
        return [said, *_parks(report.get("free_threading"))]
    lines = []
    for gil in _with_ended_as_one(report["gils"]):
        states = ", ".join(
            f"{state} {units.seconds(gil[state])} ({units.share(gil[state], gil['wall'])})"
            for state in ("held", "handoff", "idle")
        )
        lines.append(f"{gil['label']} ({gil['name']}): {states}")
        if report["policy"] != "interval":
            lines.append(f"  policy {report['policy']}: {summary.scheduling(gil)}")
    stuck = summary.unanswered(report)
    return [*lines, stuck] if stuck else lines


def _parks(parks: dict[str, Any] | None) -> list[str]:
    """What threads waited for instead; see `parks` in ARCHITECTURE.md."""
    if not parks:
        return []
    waits = ", ".join(
        f"{name} {units.seconds(parks[name]['sum'])} ({units.number(parks[name]['count'], 'wait')})"
        for name in ("parked", "suspended", "stopping")
    )
    return [f"  CPU {units.seconds(parks['cpu'])}; {waits}"]


def _with_ended_as_one(gils: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each GIL that is there, and one for those of recycled interpreters of one name."""
    rows = [gil | {"label": f"GIL {gil['id']}"} for gil in gils if gil["alive"]]
    ended: dict[str, list[dict[str, Any]]] = {}
    for gil in gils:
        if not gil["alive"]:
            ended.setdefault(gil["name"], []).append(gil)
    for name, same in ended.items():
        sums = {key: sum(gil[key] for gil in same) for key in SUMS}
        longest = {key: max(gil.get(key) or 0.0 for gil in same) or None for key in LONGEST}
        label = units.number(len(same), "ended GIL")
        rows.append({"label": label, "name": name} | sums | longest)
    return rows
