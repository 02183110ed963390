"""Tables for export: a comparison as Markdown and CSV, and a series as CSV.

The columns are those of the tables in which the project originated - configuration, requests per
minute, response, application, CPU per process, waits for the GIL - with percentiles in addition to
the means. Pure.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from headway.recorder.query.comparison import Compared
from headway.recorder.records import configuration
from headway.recorder.records.summary import Summary
from headway.report import columns, units


class Point(TypedDict):
    """A step of a series: its begin, and its summary if there are data."""

    time: float
    summary: Summary | None


class Figure(NamedTuple):
    """A column: its titles in Markdown and CSV, its value in a summary, and its format."""

    title: str
    key: str
    value: Callable[[Summary], float | None]
    said: Callable[[float], str]


def _quantile(
    metric: Literal["response", "application", "gil_wait", "take_wait"],
    name: Literal["mean", "p50", "p95", "p99"],
) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        found = summary[metric]
        return None if found is None else found[name]

    return value


def _held(summary: Summary) -> float | None:
    return None if summary["gil"] is None else summary["gil"]["held"]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


FIGURES = (
    Figure("Requests/min", "rpm", lambda summary: summary["rpm"], lambda it: f"{it:,.0f}"),
    Figure("Response", "response_mean_s", _quantile("response", "mean"), units.seconds),
    Figure("p50", "response_p50_s", _quantile("response", "p50"), units.seconds),
    Figure("p95", "response_p95_s", _quantile("response", "p95"), units.seconds),
    Figure("p99", "response_p99_s", _quantile("response", "p99"), units.seconds),
    Figure("Application", "application_mean_s", _quantile("application", "mean"), units.seconds),
    Figure(
        "CPU/process",
        "cpu_per_process_cores",
        lambda summary: summary["cpu_per_process"],
        lambda it: f"{it:.2f}",
    ),
    Figure("GIL wait p95", "gil_wait_p95_s", _quantile("gil_wait", "p95"), units.seconds),
    Figure("of a take p95", "take_wait_p95_s", _quantile("take_wait", "p95"), units.seconds),
    Figure("GIL held", "gil_held_share", _held, _percent),
)


def markdown(rows: Sequence[Compared]) -> str:
    """A table with each figure, and in brackets its ratio to that of the first row."""
    titles = ["", "Configuration", *(figure.title for figure in FIGURES), "Verdict"]
    lines = [_line(titles), _line(["---"] * 2 + ["--:"] * len(FIGURES) + ["---"])]
    for row in rows:
        figures = [
            _beside(figure, row["summary"], rows[0]["summary"] if row is not rows[0] else None)
            for figure in FIGURES
        ]
        name = _markdown_text(row["name"])
        lines.append(_line([name, _markdown_text(_shape(row)), *figures, row["verdict"]["title"]]))
    return "\n".join(lines) + "\n"


def comparison_csv(rows: Sequence[Compared]) -> str:
    """A table of plain numbers in seconds, shares and cores; a missing value is empty."""
    titles = ["name", "configuration", *(figure.key for figure in FIGURES), "requests", "verdict"]
    return _csv(
        titles,
        (
            [
                _cell(row["name"]),
                _cell(_shape(row)),
                *(figure.value(row["summary"]) for figure in FIGURES),
                row["summary"]["requests"],
                row["verdict"]["name"],
            ]
            for row in rows
        ),
    )


def series_csv(points: Iterable[Point]) -> str:
    """A line for each step, with its begin and its figures."""
    titles = ["time", *(figure.key for figure in FIGURES), "requests", "processes", "rss_bytes"]
    return _csv(
        titles,
        (
            [point["time"]]
            + (
                [None] * (len(titles) - 1)
                if (summary := point["summary"]) is None
                else [
                    *(figure.value(summary) for figure in FIGURES),
                    summary["requests"],
                    summary["processes"],
                    summary["rss"],
                ]
            )
            for point in points
        ),
    )


def _shape(row: Compared) -> str:
    return configuration.label(row["config"])


def _beside(figure: Figure, summary: Summary, first: Summary | None) -> str:
    value = figure.value(summary)
    if value is None:
        return "-"
    said = figure.said(value)
    base = None if first is None else figure.value(first)
    return f"{said} ({value / base:.2f})" if base else said


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_text(text: str) -> str:
    """`text` on one line, with characters that are special in Markdown or HTML escaped."""
    line = columns.printable(" ".join(text.split()))
    return "".join(f"\\{each}" if each in "\\|`*_[]<>#&" else each for each in line)


def _cell(text: str) -> str:
    """`text` as a cell. Text that a spreadsheet would take for a formula gets a quote in front."""
    shown = columns.printable(text)
    return f"'{shown}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else shown


def _csv(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(rows)
    return out.getvalue()
