"""A snapshot of the counters, and the GIL report made of it.

A *raw* process is a dictionary that `headway._native` returns, with times in nanoseconds.
"""

from __future__ import annotations

from headway.meter.difference import difference
from headway.report.distributions import (
    GIL_COUNTS,
    GIL_MAXIMA,
    GIL_TIMES,
    LOOP_PARTS,
    LOOP_TIMES,
    PARK_TIMES,
    THREAD_COUNTS,
    THREAD_MAXIMA,
    THREAD_PARTS,
    sum_distributions,
    to_histogram,
)
from headway.report.model import (
    SCHEMA,
    EventLoopRow,
    FreeThreading,
    GilReport,
    GilRow,
    LateLine,
    Machine,
    ParkedThreadRow,
    Stopping,
    ThreadRow,
)

# Not every measured program has loaded `typing`, and this module must not load it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Raw = dict[str, Any]

NS = 1e9  # in a second


class Snapshot:
    """The counters of a process at one moment, or between two moments: `after - before`."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    def __sub__(self, before: Snapshot) -> Snapshot:
        """The difference between `before` and this snapshot of the same process.

        The fields `longest_*` cannot be subtracted, and are those of the whole time.
        """
        if not isinstance(before, Snapshot):
            return NotImplemented
        return Snapshot(difference(self._raw, before._raw))

    def report(self) -> GilReport:
        """The GIL report of the process and of those forked from it."""
        return _process(self._raw)

    @property
    def loops(self) -> list[EventLoopRow]:
        """The event loops of the process, the latest first: `EventLoopRow` of
        `headway.report.model`."""
        return self.report().event_loops or []

    def to_dict(self) -> dict[str, Any]:
        """The GIL report as plain values, schema 2: seconds, counts, and None for unknown
        values."""
        return self.report().to_dict()

    def __str__(self) -> str:
        from headway.report import terminal

        return terminal.draw(self.report(), terminal.Style())

    def __repr__(self) -> str:
        raw = self._raw
        return (
            f"<Snapshot of pid {raw['pid']}: {raw['wall_ns'] / NS:.3f} s, "
            f"{len(raw['gils'])} GILs, {len(raw['threads'])} threads>"
        )


def _process(raw: Raw) -> GilReport:
    return GilReport(
        schema=SCHEMA,
        python=raw["python"],
        pid=raw["pid"],
        parent_pid=raw.get("parent_pid"),
        forked_from=raw.get("forked_from"),
        command=raw.get("command") or None,
        gil="enabled" if raw["gil_enabled"] else "disabled",
        policy=raw["policy"],
        switch_interval_s=raw["switch_interval_us"] / 1e6,
        wall_s=raw["wall_ns"] / NS,
        gils=[_gil(row, raw) for row in raw["gils"]],
        threads=sorted(map(_thread, raw["threads"]), key=lambda row: -row.waited_s),
        machine=None if raw.get("machine") is None else Machine(**raw["machine"]),
        free_threading=None if raw["parks"] is None else _free_threading(raw["parks"]),
        event_loops=sorted(
            (_event_loop(row, raw) for row in raw["loops"]),
            key=lambda row: (-row.late_s, -row.iteration.sum_s),
        ),
        unmeasured_events=raw["unmeasured_events"],
        unmeasured_gils=raw["unmeasured_gils"],
        unmeasured_loops=raw["unmeasured_loops"],
        children=[_process(child) for child in raw["children"]],
        unlisted_children=raw["unlisted_children"],
    )


def _gil(row: Raw, process: Raw) -> GilRow:
    rows = [thread for thread in process["threads"] if thread["gil"] == row["id"]]
    own = row["interpreter"]
    if row["folded"]:
        name, interpreters = f"({row['folded']} ended)", []
    elif own == 0:
        name, interpreters = "main", process.get("interpreters", [0])
    else:
        name = f"interpreter {'?' if own is None else own}"
        interpreters = [] if own is None else [own]
    # The policy `interval`, CPython's own rule, has no classes of threads.
    classes = process["policy"] != "interval"
    return GilRow(
        id=row["id"],
        name=name if row["folded"] else row["name"] or name,
        interpreters=interpreters,
        alive=row["alive"],
        **{f"{key}_s": row[f"{key}_ns"] / NS for key in GIL_TIMES},
        **{key: row[key] for key in GIL_COUNTS},
        **{key: _longest(row[raw]) if classes else None for key, raw in GIL_MAXIMA.items()},
        wait=to_histogram(sum_distributions(thread["wait"] for thread in rows)),
        hold=to_histogram(sum_distributions(thread["hold"] for thread in rows)),
    )


def _thread(row: Raw) -> ThreadRow:
    return ThreadRow(
        native_id=row["native_id"],
        name=_name(row),
        gil=row["gil"],
        alive=row["alive"],
        folded=row["folded"],
        held_s=row["held_ns"] / NS,
        waited_s=row["wait"]["sum_ns"] / NS,
        forced_waited_s=row["forced_waited_ns"] / NS,
        **{f"{key}_s": row[f"{key}_ns"] / NS for key in THREAD_PARTS},
        **{key: row[key] for key in THREAD_COUNTS},
        **{key: _longest(row[raw]) for key, raw in THREAD_MAXIMA.items()},
        wait=to_histogram(row["wait"]),
        hold=to_histogram(row["hold"]),
    )


def _free_threading(parks: Raw) -> FreeThreading:
    rows = parks["threads"]
    threads = [
        ParkedThreadRow(
            native_id=row["native_id"],
            name=_name(row),
            alive=row["alive"],
            folded=row["folded"],
            **{key: to_histogram(row[key]) for key in PARK_TIMES},
            stopping=_stopping([row]),
        )
        for row in rows
    ]
    return FreeThreading(
        cpu_s=None if parks["cpu_ns"] is None else parks["cpu_ns"] / NS,
        **{key: to_histogram(sum_distributions(row[key] for row in rows)) for key in PARK_TIMES},
        stopping=_stopping(rows),
        threads=sorted(threads, key=lambda row: -row.parked.sum_s),
    )


def _event_loop(row: Raw, process: Raw) -> EventLoopRow:
    parts = {name: to_histogram(row[raw]) for name, raw in LOOP_PARTS.items()}
    watched_s = row["polled_ns"] / NS + parts["iteration"].sum_s
    return EventLoopRow(
        native_id=row["native_id"],
        name=_name(row),
        alive=row["alive"],
        folded=row["folded"],
        iterating_now_s=_longest(row["iterating_ns"]),
        mean_lag_s=row["half_squares_us2"] / 1e12 / watched_s if watched_s else None,
        late_limit_s=process["late_loop_ns"] / NS,
        late=row["late"],
        **{f"{key}_s": row[f"{key}_ns"] / NS for key in LOOP_TIMES},
        **parts,
        lines=[_late_line(line) for line in row.get("lines", ())],
    )


def _late_line(line: Raw) -> LateLine:
    values = dict(line)
    late_ns = values.pop("late_ns")
    return LateLine(**values, late_s=late_ns / NS)


def _stopping(rows: list[Raw]) -> Stopping:
    return Stopping(
        count=sum(row["stopping"] for row in rows),
        sum_s=sum(row["stopping_ns"] for row in rows) / NS,
    )


def _name(row: Raw) -> str:
    return row["name"] or ("(unnamed)" if row["native_id"] else "(ended)")


def _longest(ns: int) -> float | None:
    return ns / NS if ns else None
