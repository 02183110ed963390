"""Tables of the recorder's answers: converts a dict to rows of values.

A table has its columns in order, the priority of each column on a narrow terminal, and for each row
the data from which it was made, so that a screen can show its details. It does not know screens;
the kinds of columns (`figures`) format the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headway.report import columns
from headway.top.figures import (
    AGE,
    CLOCK,
    CORES,
    COUNT,
    NAME,
    RATE,
    SECONDS,
    SHARE,
    SIZE,
    TEXT,
    Kind,
    number_in,
)

Row = dict[str, Any]
GAP = "  "
PID = Kind(TEXT.human, TEXT.plain)


class Column(NamedTuple):
    """A column. Scripts use `name`, and people read `title`. `path` leads to the value. On a narrow
    terminal the columns with the highest `rank` are left out first; those with rank 0 stay."""

    name: str
    title: str
    path: str
    kind: Kind
    rank: int = 0


class ViewTable(NamedTuple):
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def cells(self, row: Row) -> list[str]:
        return [column.kind.human(value_at(row, column.path)) for column in self.columns]

    def fitted(self, width: int) -> ViewTable:
        """The table with as many columns as fit into `width`."""
        kept = list(self.columns)
        widths = {column: self._width(column) for column in kept}
        while sum(widths[column] + len(GAP) for column in kept) - len(GAP) > width:
            last = max(kept, key=lambda column: column.rank)
            if last.rank == 0:
                break
            kept.remove(last)
        return self._replace(columns=kept)

    def _width(self, column: Column) -> int:
        cells = (column.kind.human(value_at(row, column.path)) for row in self.rows)
        return max(map(columns.width, (column.title, *cells)))


def value_at(row: Any, path: str) -> Any:
    """The value at a path such as "summary.response.p95"; None if a part of the path is missing."""
    for name in path.split("."):
        if not isinstance(row, dict):
            return None
        row = row.get(name)
    return row


def rows_of(answer: Any, name: str) -> list[Row]:
    found = answer.get(name) if isinstance(answer, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


MEASURED = (
    Column("rps", "req/s", "summary.rps", RATE),
    Column("response_p50", "resp p50", "summary.response.p50", SECONDS, 4),
    Column("response_p95", "p95", "summary.response.p95", SECONDS),
    Column("response_p99", "p99", "summary.response.p99", SECONDS, 7),
    Column("application_p95", "app p95", "summary.application.p95", SECONDS, 5),
    Column("gil_wait_p95", "GIL wait p95", "summary.gil_wait.p95", SECONDS, 1),
    Column("gil_held", "held", "summary.gil.held", SHARE, 6),
    Column("gil_handoff", "handoff", "summary.gil.handoff", SHARE, 8),
    Column("gil_idle", "idle", "summary.gil.idle", SHARE, 9),
    Column("cpu", "CPU cores", "summary.cpu_per_process", CORES, 2),
    Column("rss", "memory", "summary.rss_per_process", SIZE, 10),
    Column("busy", "busy", "summary.busy", SHARE, 3),
    Column("errors_5xx", "5xx", "summary.errors_5xx", COUNT, 11),
    Column("verdict", "verdict", "verdict.name", TEXT, 1),
)
# Only where a process has an event loop, except for scripts.
LOOPS = (
    Column("loop_p99", "loop p99", "summary.loop_iteration.p99", SECONDS, 15),
    Column("loop_late", "loop late", "late_share", SHARE, 14),
)
PROCESSES = (
    Column("host", "host", "host", NAME, 12),
    Column("group", "group", "group", NAME, 5),
    Column("pid", "pid", "pid", PID),
    Column("age", "age", "age", AGE, 13),
    *MEASURED,
    Column("slots", "slots", "slots", TEXT, 14),
)
GROUPS = (
    Column("host", "host", "host", NAME, 8),
    Column("group", "group", "group", NAME),
    Column("processes", "processes", "summary.processes", COUNT, 5),
    *MEASURED,
)
# Scripts get one table with the same columns, whatever the width.
EVERYTHING = (
    Column("scope", "scope", "scope", TEXT),
    *PROCESSES[:3],
    Column("processes", "processes", "summary.processes", COUNT),
    *MEASURED,
    *LOOPS,
)
# Events have the field names of their datagrams, which are mod_wsgi's where it has the field.
SLOW = (
    Column("time", "began", "time", CLOCK, 3),
    Column("pid", "pid", "pid", PID, 6),
    Column("state", "state", "state", TEXT, 4),
    Column("duration", "took", "slow_duration", SECONDS),
    Column("application", "app", "slow_application_time", SECONDS, 7),
    Column("gil_wait", "GIL wait", "slow_gil_wait_time", SECONDS, 2),
    Column("status", "status", "slow_status", PID, 5),
    Column("method", "method", "slow_method", TEXT, 8),
    Column("url", "URL", "url", TEXT),
    Column("endpoint", "endpoint", "slow_endpoint", TEXT, 9),
)
LIFECYCLE = (
    Column("time", "time", "time", CLOCK),
    Column("event", "event", "event", TEXT),
    Column("pid", "pid", "pid", PID),
    Column("group", "group", "group", NAME, 3),
    Column("reason", "reason", "shutdown_reason", TEXT),
    Column("death", "death", "death", TEXT, 1),
    Column("uptime", "uptime", "process_uptime", AGE, 2),
    Column("requests", "requests", "lifetime_request_count", COUNT, 4),
    Column("in_flight", "in flight", "active_requests_at_exit", COUNT, 5),
)
GC = (
    Column("time", "time", "time", CLOCK),
    Column("pid", "pid", "pid", PID),
    Column("interpreter", "interpreter", "interpreter_name", NAME, 2),
    Column("generation", "generation", "gc_event_generation", COUNT, 1),
    Column("duration", "pause", "gc_event_duration", SECONDS),
    Column("collected", "collected", "gc_event_collected", COUNT, 3),
    Column("uncollectable", "uncollectable", "gc_event_uncollectable", COUNT, 4),
)
ENDPOINTS = (
    Column("endpoint", "endpoint", "name", TEXT),
    Column("requests", "requests", "requests", COUNT),
    Column("errors", "errors", "errors", COUNT, 4),
    Column("response_p50", "resp p50", "response.p50", SECONDS, 3),
    Column("response_p95", "p95", "response.p95", SECONDS),
    Column("gil_wait_p95", "GIL wait p95", "gil_wait.p95", SECONDS, 1),
    Column("gil_held", "GIL held", "gil_held", SECONDS, 2),
    Column("cpu", "CPU", "cpu", SECONDS, 5),
)
THREADS = (
    Column("thread", "thread", "name", NAME),
    Column("gil", "GIL", "gil", NAME, 3),
    Column("held", "held", "held", SECONDS),
    Column("waited", "waited", "waited", SECONDS),
    Column("takes", "takes", "takes", COUNT, 2),
    Column("contended", "contended", "contended_takes", COUNT, 4),
    Column("forced_drops", "forced drops", "forced_drops", COUNT, 5),
    Column("preemptions", "preempted", "preemptions", COUNT, 6),
)
GILS = (
    Column("gil", "GIL", "name", NAME),
    Column("held", "held", "held", SECONDS),
    Column("handoff", "handoff", "handoff", SECONDS),
    Column("idle", "idle", "idle", SECONDS),
    Column("takes", "takes", "takes", COUNT, 2),
    Column("contended", "contended", "contended_takes", COUNT, 1),
)
LINES = (
    Column("waited", "others waited", "waited", SECONDS),
    Column("function", "function", "function", TEXT),
    Column("place", "line", "place", TEXT, 1),
    Column("endpoint", "endpoint", "endpoint", TEXT, 2),
)
LATE_LINES = (
    Column("late", "loops were late", "late", SECONDS),
    Column("part", "they", "part", TEXT, 1),
    Column("function", "function", "function", TEXT),
    Column("place", "line", "place", TEXT, 2),
    Column("callback", "callback", "callback", TEXT, 3),
    Column("holder", "held by", "holder", NAME, 4),
)
HOLDS = (
    Column("time", "time", "time", CLOCK, 3),
    Column("pid", "pid", "pid", PID, 4),
    Column("thread", "thread", "thread", NAME, 2),
    Column("duration", "held the GIL", "duration", SECONDS),
    Column("waited", "longest waiter", "waited", SECONDS, 1),
    Column("endpoint", "endpoint", "endpoint", TEXT),
)


def scopes(answer: Row) -> ViewTable:
    """The total, and below it each group with its processes."""
    total = answer.get("total")
    rows = [{"scope": "total", **total}] if isinstance(total, dict) else []
    rows += [{"scope": "group", **row} for row in rows_of(answer, "groups")]
    rows += [{"scope": "process", **row} for row in rows_of(answer, "processes")]
    rows = [{**row, "late_share": late_share(row)} for row in rows]
    return ViewTable("everything", EVERYTHING, rows)


def groups(answer: Row) -> ViewTable:
    return with_loops(ViewTable("groups", GROUPS, rows_of(answer, "groups")))


LATE_PARTS = ("computed", "waited", "blocked")


def late_share(row: Row) -> float | None:
    """The part of the event loops' time that is in late iterations; None without loops."""
    parts = [number_in(value_at(row, f"summary.loops.late_{part}")) for part in LATE_PARTS]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def with_loops(table: ViewTable) -> ViewTable:
    """The table with the columns of event loops, if a row has any."""
    rows = [{**row, "late_share": late_share(row)} for row in table.rows]
    if all(row["late_share"] is None for row in rows):
        return table
    return table._replace(columns=(*table.columns, *LOOPS), rows=rows)


# The orders of processes: the name for people, and the path of the value. The greatest comes first.
SORTS = (
    ("group and pid", ""),
    ("requests", "summary.rps"),
    ("GIL wait", "summary.gil_wait.p95"),
    ("response", "summary.response.p95"),
    ("CPU", "summary.cpu_per_process"),
    ("memory", "summary.rss_per_process"),
)


def processes(answer: Row, slots: Row | None = None, sort: str = "") -> ViewTable:
    busy = {(row.get("host"), row.get("pid")): row for row in rows_of(slots, "processes")}
    now = answer.get("time")
    rows = []
    for row in rows_of(answer, "processes"):
        bars = slot_bars(busy.get((row.get("host"), row.get("pid"))))
        rows.append({**row, "age": difference(now, row.get("started")), "slots": bars})
    rows.sort(key=lambda row: sort_key(row, sort))
    return with_loops(ViewTable("processes", PROCESSES, rows))


def sort_key(row: Row, sort: str) -> tuple[Any, ...]:
    name = str(row.get("host", "")), str(row.get("group", "")), number_in(row.get("pid")) or 0
    value = number_in(value_at(row, sort)) if sort else None
    return (-(value or 0), *name)


def difference(later: Any, earlier: Any) -> float | None:
    if isinstance(later, (int, float)) and isinstance(earlier, (int, float)):
        return later - earlier
    return None


LEVELS = "▁▂▃▄▅▆▇█"


def slot_bars(row: Row | None) -> str:
    """A bar for each worker thread: its busy share in the last step with figures."""
    steps = row.get("busy") if row else None
    known = [step for step in steps if step] if isinstance(steps, list) else []
    return "".join(map(level, known[-1])) if known and isinstance(known[-1], list) else ""


def level(part: Any) -> str:
    if not isinstance(part, (int, float)):
        return " "
    return LEVELS[min(max(int(part * len(LEVELS)), 0), len(LEVELS) - 1)]


STATES = ("active", "completed")


def slow(answer: Row) -> ViewTable:
    rows = []
    for row in rows_of(answer, "events"):
        state = row.get("slow_record_state")
        path = (row.get(name) or "" for name in ("slow_script_name", "slow_path_info"))
        rows.append(
            {
                **row,
                "state": STATES[state] if state in (0, 1) else None,
                "url": "".join(map(str, path)) or "/",
            }
        )
    return ViewTable("slow requests", SLOW, rows)


def lifecycle(answer: Row) -> ViewTable:
    return ViewTable("lifecycle", LIFECYCLE, rows_of(answer, "events"))


def gc(answer: Row) -> ViewTable:
    rows = [row for row in rows_of(answer, "events") if row.get("event") != "gc_snapshot"]
    return ViewTable("garbage collections", GC, rows)


def endpoints(answer: Row) -> ViewTable:
    return ViewTable("endpoints", ENDPOINTS, rows_of(answer, "endpoints"))


def threads(answer: Row) -> ViewTable:
    return ViewTable("threads", THREADS, rows_of(answer, "threads"))


def lines(answer: Row) -> ViewTable:
    return ViewTable("lines that make threads wait", LINES, with_places(answer, "lines"))


def late_lines(answer: Row) -> ViewTable:
    return ViewTable(
        "lines that event loops are late for", LATE_LINES, with_places(answer, "late_lines")
    )


def with_places(answer: Row, name: str) -> list[Row]:
    """The rows of lines, each with its file and number as one word."""
    rows = []
    for row in rows_of(answer, name):
        place = f"{row['file']}:{row.get('line')}" if row.get("file") else None
        rows.append({**row, "place": place})
    return rows


def holds(answer: Row) -> ViewTable:
    return ViewTable("long holds", HOLDS, rows_of(answer, "holds"))


def gils(answer: Row) -> ViewTable:
    return ViewTable("GILs", GILS, rows_of(answer, "gils"))


class View(NamedTuple):
    """A page of `headway top`: its key, its request to the API besides `now`, and its tables. With
    `since_s` it covers this many seconds, independent of the window of the figures."""

    name: str
    key: str
    path: str
    tables: Sequence[Callable[[Row], ViewTable]]
    since_s: float = 0.0
    points: int = 0

    def query(self, window_s: float, group: str | None) -> list[tuple[str, str]]:
        query = [("from", f"-{self.since_s or window_s:g}")]
        if self.points:
            query.append(("points", str(self.points)))
        return query + ([("group", group)] if group else [])


VIEWS = (
    View("overview", "1", "series", (groups,), since_s=300, points=60),
    View("processes", "2", "slots", (), points=5),
    View("slow", "3", "slow", (slow,), since_s=600),
    View("holders", "4", "holders", (gils, threads, lines, holds, late_lines)),
    View("endpoints", "5", "holders", (endpoints,)),
    View("gc", "6", "gc", (gc,), since_s=600),
    View("lifecycle", "7", "lifecycle", (lifecycle,), since_s=600),
)
