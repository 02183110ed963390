"""Draws a GIL report as text for a terminal. Pure: converts a report to a string.

The text is plain ASCII if the encoding has no block elements. It is coloured only on a terminal,
and not if NO_COLOR (no-color.org) is set. This module runs at the end of the user's program, so it
imports nothing large.
"""

from __future__ import annotations

import os

from headway.report import (
    columns,
    event_loops,
    processes,
    sentence,
    thread_groups,
    units,
    wait_scale,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.report.model import (
        EventLoopRow,
        FreeThreading,
        GilReport,
        GilRow,
        ParkedThreadRow,
        ThreadRow,
    )

MIN_WIDTH, MAX_WIDTH = 60, 110
MAX_THREADS = 20
MAX_OTHERS = 30
MAX_LOOPS, MAX_LINES = 10, 6
# The part of the late time from which on a line is shown.
LEAST_LATE = 0.01
MIN_NAME = 12
# The columns left of a histogram's bars: multiple, limit, axis.
LABEL_COLUMNS = 21
BLOCKS = "█▉▊▋▌▍▎▏"


class Style:
    """The style of the text: its width in columns, and whether it may use block elements and
    colour."""

    __slots__ = ("blocks", "colour", "width")

    def __init__(self, width: int = 80, *, blocks: bool = True, colour: bool = False) -> None:
        self.width = min(max(width, MIN_WIDTH), MAX_WIDTH)
        self.blocks = blocks
        self.colour = colour

    @classmethod
    def of_stream(cls, descriptor: int, encoding: str) -> Style:
        """The style for text that is written to a file descriptor in `encoding`."""
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() else 0
        try:
            terminal = os.isatty(descriptor)
            if not width and terminal:
                width = os.get_terminal_size(descriptor).columns
        except OSError:
            terminal = False
        try:
            (BLOCKS + "µ").encode(encoding)
            blocks = True
        except (UnicodeError, LookupError):
            blocks = False
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") in (None, "", "dumb")
        return cls(width or 80, blocks=blocks, colour=terminal and not plain)

    def bar(self, part: float, columns: int) -> str:
        """A bar that fills `part` (0 to 1) of `columns`. A part above 0 is always visible."""
        if not self.blocks:
            return "#" * max(round(part * columns), part > 0)
        eighths = max(round(part * columns * 8), part > 0)
        full, rest = divmod(eighths, 8)
        return BLOCKS[0] * full + (BLOCKS[8 - rest] if rest else "")

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    def marked(self, text: str) -> str:
        return f"\x1b[36m{text}\x1b[0m" if self.colour else text

    def dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.colour else text


def draw(report: GilReport, style: Style | None = None) -> str:
    """The whole report, with a newline at its end: the process whose threads waited most, and the
    others as rows. The default style has 80 columns and no colour."""
    style = style or Style()
    shown = sentence.shown(report)
    lines = [*_heading(report, style), ""]
    if shown is not report:
        waited = shown is sentence.waited_most(report)
        reason = "its threads waited most" if waited else "its event loop is the latest"
        lines[-1:] = [*_of_process(shown, reason, style), ""]
    lines += _figures(shown, style)
    others = [process for process in report.processes() if process is not shown]
    if others:
        lines += [*_others(others, "child" if shown is report else "process", style), ""]
    missing = _missing(report)
    if missing:
        lines += [*_wrap(missing, style.width), ""]
    stuck = sentence.unanswered(report)
    if stuck:
        lines += [*_wrap(stuck, style.width), ""]
    lines += _wrap(sentence.sentence(report), style.width)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if style.blocks else text.replace("µ", "u")


def _figures(process: GilReport, style: Style) -> list[str]:
    """The tables of one process, each with an empty line behind it."""
    lines = []
    for gil in process.gils:
        lines += [*_gil(gil, style), *_scheduling(gil, process, style), ""]
    if process.threads:
        lines += [*_threads(process, style), ""]
    for gil in process.gils:
        if gil.wait.count:
            lines += [*_waits(gil, process, style), ""]
    if process.event_loops:
        lines += [*_event_loops(process.event_loops, style), ""]
    if process.free_threading:
        lines += [*_free_threading(process.free_threading, process.wall_s, style), ""]
    return lines


def _of_process(process: GilReport, reason: str, style: Style) -> list[str]:
    """The heading of the process that is shown in place of the program's first."""
    facts = f"{units.seconds(process.wall_s)} watched; {reason}"
    label = processes.label(process)
    return _titled(f"pid {process.pid}", f"{label}, {facts}" if label else facts, style)


def _heading(report: GilReport, style: Style) -> list[str]:
    facts = [
        f"Python {columns.name(report.python)}",
        f"pid {report.pid}",
        f"{units.seconds(report.wall_s)} watched",
        f"policy {columns.name(report.policy)}",
        f"switch interval {units.seconds(report.switch_interval_s)}",
    ]
    if report.policy == "interval":
        del facts[3]
    if report.gil == "disabled":
        facts.insert(1, "GIL disabled")
    return _titled("headway", ", ".join(facts), style)


def _titled(title: str, facts: str, style: Style) -> list[str]:
    """A title followed by `facts`, wrapped to as many lines as needed."""
    first, *rest = _wrap(facts, style.width - len(title) - 2)
    more = _wrap(" ".join(rest), style.width - 2) if rest else []
    return [f"{style.bold(title)}  {first}", *(f"  {line}" for line in more)]


def _gil(gil: GilRow, style: Style) -> list[str]:
    ended = "" if gil.alive else ", ended"
    counts = (
        f"{units.number(gil.takes, 'take')}, {gil.contended_takes:,} contended; "
        f"drops: {gil.voluntary_drops:,} voluntary, {gil.forced_drops:,} forced"
    )
    lines = _titled(f"GIL {gil.id} ({columns.name(gil.name)}{ended})", counts, style)
    for state, time_s in (("held", gil.held_s), ("handoff", gil.handoff_s), ("idle", gil.idle_s)):
        part = time_s / gil.wall_s if gil.wall_s else 0.0
        share = units.share(time_s, gil.wall_s)
        label = f"  {state:8}{units.seconds(time_s):>9}{share:>9}  "
        lines.append(label + style.bar(part, style.width - len(label)))
    return lines


def _scheduling(gil: GilRow, report: GilReport, style: Style) -> list[str]:
    """The effects of the policy, unless it is `interval`."""
    if report.policy == "interval":
        return []
    text = sentence.scheduling(
        gil.preemptions, gil.longest_wait_io_bound_s, gil.longest_wait_cpu_bound_s
    )
    return [f"  {line}" for line in _wrap(text, style.width - 2)]


THREAD_COLUMNS = (
    "thread",
    "waited",
    "held",
    "takes",
    "contended",
    "forced drops",
    "preempted",
    "p50",
    "p99",
    "longest",
)
# The columns that a narrow terminal omits, in this order; the JSON has all of them.
LESS_WANTED = ("forced drops", "takes", "p99", "contended")


def _threads(report: GilReport, style: Style) -> list[str]:
    figures = (_waited_s, _held_s)
    rows = thread_groups.group(report.threads, figures, MAX_THREADS)
    first, rest = thread_groups.shown(rows, figures, MAX_THREADS)
    several = len(report.gils) > 1
    preempts = report.policy != "interval"
    grouped = any(thread_groups.threads_of(row) > 1 for row in rows)
    head = [title for title in THREAD_COLUMNS if preempts or title != "preempted"]
    if grouped:
        head.insert(1, "threads")
    table = []
    for row in first:
        wait = row.wait
        times = (row.waited_s, row.held_s)
        counts = [row.takes, row.contended_takes, row.forced_drops]
        if preempts:
            counts.append(row.preemptions)
        waits = (wait.p50_s, wait.p99_s, wait.max_s) if wait.count else (None,) * 3
        name = columns.name(row.name)
        table.append(
            [
                f"{name} (GIL {row.gil})" if several else name,
                *([f"{thread_groups.threads_of(row):,}"] if grouped else []),
                *(units.seconds(time) for time in times),
                *(f"{count:,}" for count in counts),
                *(units.seconds(time) for time in waits),
            ]
        )
    lines = _table(head, table, style, LESS_WANTED)
    if rest:
        waited = units.seconds(sum(row.waited_s for row in rest))
        held = units.seconds(sum(row.held_s for row in rest))
        more = units.number(sum(map(thread_groups.threads_of, rest)), "more thread")
        lines.append(style.dim(f"and {more}: waited {waited}, held {held}"))
    return lines


def _waited_s(row: ThreadRow) -> float:
    return row.waited_s


def _held_s(row: ThreadRow) -> float:
    return row.held_s


def _table(
    head: Sequence[str], rows: Sequence[list[str]], style: Style, less_wanted: Sequence[str] = ()
) -> list[str]:
    """A table whose first column is left-aligned and whose other columns are right-aligned. If it
    is too wide for the terminal, the `less_wanted` columns are dropped one by one; then the first
    column is shortened."""
    table = [list(column) for column in zip(head, *rows, strict=True)]
    gone = list(less_wanted)
    while _width(table) > style.width and gone:
        title = gone.pop(0)
        table = [column for column in table if column[0] != title]
    spare = style.width - _width(table)
    first = max(max(map(columns.width, table[0])) + min(spare, 0), MIN_NAME)
    cuts = columns.apart(table[0], first)
    table[0] = [columns.pad(cuts[cell], first) for cell in table[0]]
    head_line, *lines = columns.aligned(list(zip(*table, strict=True)))
    return [style.bold(head_line), *lines]


def _width(table: Sequence[Sequence[str]]) -> int:
    return sum(max(map(columns.width, column)) + 2 for column in table) - 2


def _waits(gil: GilRow, report: GilReport, style: Style) -> list[str]:
    wait, interval_s = gil.wait, report.switch_interval_s
    where = f" {gil.id}" if len(report.gils) > 1 else ""
    times = (("p50", wait.p50_s), ("p90", wait.p90_s), ("p99", wait.p99_s), ("longest", wait.max_s))
    figures = ", ".join(f"{label} {units.seconds(time_s)}" for label, time_s in times)
    count = units.number(wait.count, "wait")
    lines = _titled(f"waits for GIL{where}", f"{count}: {figures}", style)
    rows = wait_scale.rows(wait, interval_s)
    most = max(row.count for row in rows)
    length = style.width - LABEL_COLUMNS - len(f" {most:,}")
    line, crossing = "│├" if style.blocks else "|+"
    for row in rows:
        mark = f"{row.multiple} x" if row.multiple else ""
        limit = f"> {units.seconds(row.low_s)}" if row.low_s else f"to {units.seconds(row.high_s)}"
        bar = style.bar(row.count / most, length)
        count = f" {row.count:,}" if row.count else ""
        drawn = f"{mark:>7} {limit:>11} {crossing if row.multiple else line}{bar}{count}"
        lines.append(style.marked(drawn) if row.multiple else drawn)
    if interval_s and any(row.multiple for row in rows):
        legend = f"    n x  n switch intervals of {units.seconds(interval_s)}"
        lines.append(style.dim(legend))
    return lines


LOOP_COLUMNS = (
    "event loop",
    "a second",
    "busy",
    "p50",
    "p99",
    "longest",
    "computed",
    "waited",
    "blocked",
)


def _event_loops(rows: Sequence[EventLoopRow], style: Style) -> list[str]:
    """The iterations of event loops, and the lines that made them late."""
    table = []
    for row in rows[:MAX_LOOPS]:
        iteration = row.iteration
        watched_s = row.polled_s + iteration.sum_s
        times = (iteration.p50_s, iteration.p99_s, iteration.max_s)
        sums = (row.computed.sum_s, row.waited.sum_s, row.blocked.sum_s)
        table.append(
            [
                columns.name(row.name),
                f"{iteration.count / watched_s:,.0f}" if watched_s else "-",
                units.share(iteration.sum_s, watched_s),
                *(units.seconds(time) for time in (*times, *sums)),
            ]
        )
    lines = _table(LOOP_COLUMNS, table, style, ("p50", "a second"))
    if len(rows) > MAX_LOOPS:
        more = units.number(len(rows) - MAX_LOOPS, "more event loop")
        lines.append(style.dim(f"and {more} (the JSON of --json FILE has them all)"))
    for row in rows[:MAX_LOOPS]:
        lines += _late_lines(row, style)
    return lines


def _late_lines(row: EventLoopRow, style: Style) -> list[str]:
    """The late iterations of a loop, if it has any, and the lines of code that they ran."""
    facts = []
    if row.late:
        count, limit = units.number(row.late, "iteration"), units.seconds(row.late_limit_s)
        facts += [
            f"{count} of {limit} or longer, {units.seconds(row.late_s)} in all",
            f"an event waits {units.seconds(row.mean_lag_s)} on average",
        ]
    if row.iterating_now_s:
        facts.append(f"one that had lasted {units.seconds(row.iterating_now_s)} and had not ended")
    if not facts:
        return []
    said = f"{columns.name(row.name)}: {'; '.join(facts)}"
    lines = [f"  {line}" for line in _wrap(said, style.width - 2)]
    late_s = row.late_s + (row.iterating_now_s or 0.0)
    shown = [line for line in row.lines if line.late_s >= LEAST_LATE * late_s][:MAX_LINES]
    for line in shown:
        where = event_loops.code(line)
        if line.callback is not None:
            where += f", by {columns.name(line.callback)}"
        if line.thread is not None:
            where += f", held by {columns.name(line.thread)}"
        lines += _labelled(line.part, line.late_s, where, style)
    other_s = late_s - sum(line.late_s for line in shown)
    if other_s >= LEAST_LATE * late_s:
        which = "other lines, and before the first reading" if shown else "before the first reading"
        lines += _labelled("other", other_s, which, style)
    return lines


def _free_threading(parks: FreeThreading, wall_s: float, style: Style) -> list[str]:
    """The waits of a free-threaded build, and the threads that waited for locks and events; see
    "parked" in docs/design/words.md."""
    facts = f"CPU {units.seconds(parks.cpu_s)}"
    if parks.cpu_s is not None and wall_s:
        facts += f", {parks.cpu_s / wall_s:.2f} cores on average"
    lines = _titled("free-threaded", facts, style)
    for label, waits, what in (
        ("parked", parks.parked, "for locks and events"),
        ("suspended", parks.suspended, "while another stopped the world"),
    ):
        text = f"{units.number(waits.count, 'wait')} {what}"
        if waits.count:
            text += f": p50 {units.seconds(waits.p50_s)}, p99 {units.seconds(waits.p99_s)}"
            text += f", longest {units.seconds(waits.max_s)}"
        lines += _labelled(label, waits.sum_s, text, style)
    text = f"{units.number(parks.stopping.count, 'wait')} until the others stood still"
    lines += _labelled("stopping", parks.stopping.sum_s, text, style)
    waiting = [row for row in parks.threads if row.parked.count or row.suspended.count]
    if not waiting:
        return lines
    figures = (_parked_s, _suspended_s)
    rows = thread_groups.group(waiting, figures, MAX_THREADS)
    first, rest = thread_groups.shown(rows, figures, MAX_THREADS)
    grouped = any(thread_groups.threads_of(row) > 1 for row in rows)
    table = []
    for row in first:
        parked = row.parked
        times = (parked.p50_s, parked.p99_s, parked.max_s) if parked.count else (None,) * 3
        table.append(
            [
                columns.name(row.name),
                *([f"{thread_groups.threads_of(row):,}"] if grouped else []),
                units.seconds(parked.sum_s),
                f"{parked.count:,}",
                *(units.seconds(time) for time in times),
                units.seconds(row.suspended.sum_s),
            ]
        )
    head = ["thread", "parked", "times", "p50", "p99", "longest", "suspended"]
    if grouped:
        head.insert(1, "threads")
    lines += ["", *_table(head, table, style, ("p99", "times"))]
    if rest:
        parked_s = units.seconds(sum(row.parked.sum_s for row in rest))
        more = units.number(sum(map(thread_groups.threads_of, rest)), "more thread")
        lines.append(style.dim(f"and {more}: parked {parked_s}"))
    return lines


def _parked_s(row: ParkedThreadRow) -> float:
    return row.parked.sum_s


def _suspended_s(row: ParkedThreadRow) -> float:
    return row.suspended.sum_s


def _labelled(label: str, time_s: float, said: str, style: Style) -> list[str]:
    start = f"  {label:10}{units.seconds(time_s):>9}  "
    first, *rest = _wrap(said, style.width - len(start))
    return [start + first, *(" " * len(start) + line for line in rest)]


def _others(others: Sequence[GilReport], title: str, style: Style) -> list[str]:
    table = []
    ranked = sorted(others, key=lambda process: -sum(row.waited_s for row in process.threads))
    for process in ranked[:MAX_OTHERS]:
        held_s = sum(gil.held_s for gil in process.gils)
        waits = [gil.wait for gil in process.gils if gil.wait.count]
        table.append(
            [
                f"pid {process.pid} {processes.label(process)}".rstrip(),
                units.seconds(process.wall_s),
                units.seconds(held_s),
                units.share(held_s, process.wall_s),
                units.seconds(sum(thread.waited_s for thread in process.threads)),
                f"{sum(wait.count for wait in waits):,}",
                units.seconds(max((wait.max_s or 0.0 for wait in waits), default=None)),
            ]
        )
    head = [title, "watched", "held", "of the time", "waited", "waits", "longest"]
    lines = _table(head, table, style, ("of the time", "waits"))
    if len(others) > MAX_OTHERS:
        more = f"{len(others) - MAX_OTHERS:,} more"
        lines.append(style.dim(f"and {more} (the JSON of --json FILE has them all)"))
    return lines


def _missing(report: GilReport) -> str:
    """A sentence on the data that the report lacks; "" if it is complete."""
    lacks = []
    if report.unmeasured_events:
        lacks.append(f"{units.number(report.unmeasured_events, 'event')} of threads")
    if report.unmeasured_gils:
        lacks.append(f"{units.number(report.unmeasured_gils, 'own GIL')} of sub-interpreters")
    if report.unmeasured_loops:
        lacks.append(units.number(report.unmeasured_loops, "event loop"))
    if report.unlisted_children:
        lacks.append(f"{report.unlisted_children:,} of the children")
    return f"Not counted, for want of room: {', '.join(lacks)}." if lacks else ""


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and columns.width(lines[-1]) + 1 + columns.width(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines
