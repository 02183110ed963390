"""The answers of the API by endpoint: JSON below /api/v1/, and tables as text.

Times are seconds since 1970, durations are seconds, shares are 0 to 1. Does not depend on WSGI,
which `application` handles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from headway import __version__, _native
from headway.recorder.query import tables
from headway.recorder.query.comparison import compare
from headway.recorder.query.flame_graph import flame_graph
from headway.recorder.query.history import History
from headway.recorder.query.measuring import measure, measure_now, read, switch_intervals
from headway.recorder.query.query import Query, Range
from headway.recorder.records import summary
from headway.recorder.records.configuration import setting_of
from headway.recorder.records.histogram import Histogram, quantiles
from headway.recorder.records.stacks import frame_of
from headway.recorder.records.summary import Record, count_processes, summarize
from headway.recorder.store.selection import Selection

MAX_POINTS = 2000
MAX_EVENTS = 5000
MAX_MARKERS = 500
MAX_HOLDS = 100
LONGEST_WINDOW_S = 600.0

Answer = dict[str, Any]
# The tables of a record: the key in the record and in the answer, and the prefix of the fields.
ROWS = (
    ("gils", "gil_"),
    ("threads", "thread_"),
    ("endpoints", "endpoint_"),
    ("interpreters", "interpreter_"),
)


def now(history: History, query: Query) -> Answer:
    window_s = query.number("window", 10.0, 1.0, LONGEST_WINDOW_S)
    recorder = {
        **history.health(),
        "version": __version__,
        "recordings": history.recordings(),
    }
    return {**measure_now(history, time.time(), window_s), "recorder": recorder}


def series(history: History, query: Query) -> Answer:
    selection = query.selection()
    span = _with_data(history, query.range(), selection)
    points = query.whole("points", 300, 1, MAX_POINTS)
    step = history.step_of(span.start, span.end, span.seconds / points, selection)
    found = history.records(span.start, span.end, step, selection)
    read_points = [
        (at, None if record is None else _native.telemetry_read(record), heard)
        for at, record, heard in found
    ]
    intervals = {
        interval
        for _, record, _ in read_points
        if record is not None
        for interval in switch_intervals(record)
    }
    return {
        "from": span.start,
        "to": span.end,
        "step": step,
        "switch_intervals": sorted(intervals),
        "points": [
            {
                "time": at,
                "summary": None
                if record is None
                else summarize(record, step, count_processes(record, step, heard)),
                "setting": None if record is None else setting_of(record),
            }
            for at, record, heard in read_points
        ],
        "markers": history.events("lifecycle", span.start, span.end, selection, MAX_MARKERS),
    }


def summary_of(history: History, query: Query) -> Answer:
    return {**measure(history, query.range(), query.selection())}


def distribution(history: History, query: Query) -> Answer:
    metric = query.one_of("metric", summary.METRICS)
    record = read(history, query.range(), query.selection())
    return {
        "histogram": summary.distribution(record, metric),
        "switch_intervals": switch_intervals(record),
    }


def holders(history: History, query: Query) -> Answer:
    span, selection = query.range(), query.selection()
    record = read(history, span, selection)
    answer: Answer = {name: _rows(record, name, prefix) for name, prefix in ROWS}
    answer["threads"].sort(key=lambda row: -row.get("held", 0.0) - row.get("parked", 0.0))
    answer["endpoints"].sort(key=lambda row: (-row.get("gil_held", 0.0), -row.get("requests", 0)))
    answer["lines"] = _lines(record)
    answer["late_lines"] = _late_lines(record)
    answer["seconds"] = span.seconds
    answer["holds"] = [
        {key.removeprefix("hold_"): value for key, value in event.items()}
        for event in history.events("hold", span.start, span.end, selection, MAX_HOLDS)
    ]
    return answer


def _lines(record: Record) -> list[dict[str, Any]]:
    """The time that threads waited while others executed each line, the longest first. A row
    without a file stands for no line: handoffs, and what was not recorded."""
    found = []
    for row in record.get("lines", ()):
        frame = frame_of(row.get("line_function", ""), row.get("line_place", ""))
        found.append(
            {
                **frame._asdict(),
                "endpoint": row.get("line_endpoint", ""),
                "waited": row.get("line_waited", 0.0),
            }
        )
    return sorted(found, key=lambda row: -row["waited"])


def _late_lines(record: Record) -> list[dict[str, Any]]:
    """The time for which event loops were late while they, or who held the GIL for which they
    waited, executed each line, the longest first."""
    found = []
    for row in record.get("late_lines", ()):
        frame = frame_of(row.get("late_function", ""), row.get("late_place", ""))
        found.append(
            {
                **frame._asdict(),
                "callback": row.get("late_callback", ""),
                "holder": row.get("late_holder", ""),
                "part": row.get("late_part", ""),
                "late": row.get("late_time", 0.0),
            }
        )
    return sorted(found, key=lambda row: -row["late"])


def flame_graph_of(history: History, query: Query) -> Answer:
    span, selection = query.range(), query.selection()
    is_late = query.one_of("of", ("", "waits", "late")) == "late"
    return {**flame_graph(history, span, selection, query.text("endpoint"), is_late)}


def _rows(record: Record, name: str, prefix: str) -> list[dict[str, Any]]:
    """The rows of a table, with field names without the prefix, and distributions as quantiles."""
    found = []
    for row in record.get(name, ()):
        shown = {
            key.removeprefix(prefix): (
                quantiles(cast(Histogram, value)) if isinstance(value, dict) else value
            )
            for key, value in row.items()
        }
        # The name of an interpreter is the record's field `interpreter_row_name`.
        shown["name"] = shown.pop("row_name", shown.get("name", ""))
        found.append({**DEFAULTS[name], **shown})
    return found


# The defaults of fields that a row may lack.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gils": {
        **dict.fromkeys(("wall", "held", "handoff", "idle"), 0.0),
        **dict.fromkeys(("takes", "contended_takes", "forced_drops", "preemptions"), 0),
    },
    "threads": {
        "gil": "",
        **dict.fromkeys(("held", "waited", "forced_waited"), 0.0),
        **dict.fromkeys(("takes", "contended_takes", "forced_drops", "preemptions"), 0),
    },
    "endpoints": {
        **dict.fromkeys(("is_route", "requests", "errors"), 0),
        **dict.fromkeys(("response", "gil_wait")),
        **dict.fromkeys(("gil_held", "application", "cpu"), 0.0),
    },
    "interpreters": {
        **dict.fromkeys(("requests", "errors", "own_gil"), 0),
        **dict.fromkeys(("application", "gil_wait", "gil_held"), 0.0),
    },
}


def _with_data(history: History, span: Range, selection: Selection) -> Range:
    """The range without the time before the first report, so that a chart shows the life of a
    recorder that is younger than the range."""
    return Range(history.begin(span.start, span.end, selection), span.end)


def slots(history: History, query: Query) -> Answer:
    selection = query.selection()
    span = _with_data(history, query.range(), selection)
    step = span.seconds / query.whole("points", 120, 1, MAX_POINTS)
    found = history.slots(span.start, span.end, step, selection)
    return {
        "times": [at for at, _ in found[0][1]] if found else [],
        "processes": [
            {
                "host": process.host,
                "pid": process.pid,
                "group": process.group,
                "busy": [busy for _, busy in steps],
            }
            for process, steps in found
        ],
    }


def _events(kind: str) -> Callable[[History, Query], Answer]:
    def events(history: History, query: Query) -> Answer:
        span = query.range()
        limit = query.whole("limit", 200, 1, MAX_EVENTS)
        found = history.events(kind, span.start, span.end, query.selection(), limit)
        return {"events": found}

    return events


def comparison(history: History, query: Query) -> Answer:
    return {"rows": compare(history, query.texts("row"))}


def comparison_markdown(history: History, query: Query) -> str:
    return tables.markdown(compare(history, query.texts("row")))


def comparison_csv(history: History, query: Query) -> str:
    return tables.comparison_csv(compare(history, query.texts("row")))


def series_csv(history: History, query: Query) -> str:
    return tables.series_csv(series(history, query)["points"])


# The endpoints below /api/v1/.
QUERIES: dict[str, Callable[[History, Query], Answer]] = {
    "now": now,
    "series": series,
    "summary": summary_of,
    "distribution": distribution,
    "holders": holders,
    "flame_graph": flame_graph_of,
    "slots": slots,
    "lifecycle": _events("lifecycle"),
    "slow": _events("slow"),
    "gc": _events("gc"),
    "compare": comparison,
}
TABLES: dict[str, tuple[str, Callable[[History, Query], str]]] = {
    "compare.md": ("text/markdown; charset=utf-8", comparison_markdown),
    "compare.csv": ("text/csv; charset=utf-8", comparison_csv),
    "series.csv": ("text/csv; charset=utf-8", series_csv),
}
