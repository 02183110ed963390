"""The functions that made other threads wait most, as data and as lines for a terminal.

Charges are summed by the innermost frame: the line that ran while others waited. Of a profile
without holders, it is the line that waited. Pure but for
`lines`, which shortens files by the current folder.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from headway.profile import sides
from headway.profile.model import UNKNOWN_THREAD
from headway.report import columns, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.profile.model import Frame, Profile
    from headway.report.model import GilReport
    from headway.report.terminal import Style

NS = 1e9
MOST_ROWS, MOST_WAITERS = 5, 3
# Time without a stack is mentioned from this share of all waiting on.
LEAST_SHARE = 0.01
MIN_LABEL, MAX_LABEL = 18, 44
# The fewest columns for waiters: three eighths of a terminal, up to the room that
# "Thread-12 (~ 100 % and 99 more" needs.
MIN_WAITERS, ENOUGH_FOR_WAITERS = 22, 30
# The fewest columns of a function's name, and the most of a thread's.
MIN_FUNCTION, MAX_THREAD = 3, 24
HEAD = ("made others wait", "waited", "share", "threads that waited")
HEAD_WITHOUT_HOLDERS = "waited for locks and events"


class ChargedLine(NamedTuple):
    """A line of a function that made others wait, or that waited. `waiters` are the names of the
    threads that waited with their times, the largest first."""

    frame: Frame
    waited_ns: int
    waiters: list[tuple[str, int]]


class ChargeTable(NamedTuple):
    """`rows` are all lines, the largest charge first. The charges of the rows with `handoff_ns` and
    `not_recorded_ns` are `waited_ns`."""

    waited_ns: int
    rows: list[ChargedLine]
    handoff_ns: int
    not_recorded_ns: int
    has_holders: bool = True

    def to_dict(self, most: int | None = None) -> dict[str, Any]:
        """The table for JSON, with at most `most` rows."""
        return {
            "waited_s": self.waited_ns / NS,
            "handoff_s": self.handoff_ns / NS,
            "not_recorded_s": self.not_recorded_ns / NS,
            "lines": [
                {
                    "function": row.frame.function,
                    "file": row.frame.file,
                    "line": row.frame.line,
                    "waited_s": row.waited_ns / NS,
                    "waiters": [
                        {"thread": thread, "waited_s": waited_ns / NS}
                        for thread, waited_ns in row.waiters
                    ],
                }
                for row in self.rows[:most]
            ],
        }


def tabulate(profile: Profile) -> ChargeTable:
    sums: dict[Frame, dict[str, int]] = {}
    has_holders = profile.has_holders
    totals = [total for total in profile.totals if total.has_holders == has_holders]
    waited_ns = sum(total.waited_ns for total in totals)
    if has_holders:
        charges = [(each.stack, each.waiter, each.waited_ns) for each in profile.holders]
        not_recorded_ns = sum(total.held_not_recorded_ns for total in totals)
    else:
        charges = [(each.stack, each.thread, each.waited_ns) for each in profile.waiters]
        not_recorded_ns = sum(total.waits_not_recorded_ns for total in totals)
    for stack, waiter, charged_ns in charges:
        if charged_ns:
            waiters = sums.setdefault((stack or sides.NO_STACK)[-1], {})
            waiters[waiter] = waiters.get(waiter, 0) + charged_ns
    rows = [
        ChargedLine(frame, sum(waiters.values()), sorted(waiters.items(), key=_largest_first))
        for frame, waiters in sums.items()
    ]
    rows.sort(key=lambda row: (-row.waited_ns, row.frame))
    return ChargeTable(waited_ns, rows, profile.handoff_ns, not_recorded_ns, has_holders)


def report_lines(profile: Profile, report: GilReport, style: Style) -> list[str]:
    """The lines below the report of a measurement: the table of its profile, and the waiting that
    is not in it."""
    return [*lines(tabulate(profile), style), *not_covered(report)]


def lines(table: ChargeTable, style: Style, folder: str | None = None) -> list[str]:
    """The lines of the terminal's report. Files below `folder`, by default the current one, are
    named relative to it."""
    head = HEAD[0] if table.has_holders else HEAD_WITHOUT_HOLDERS
    if not table.waited_ns:
        reason = "a GIL" if table.has_holders else "a lock"
        return [style.bold(head), f"No thread waited for {reason}."]
    if folder is None:
        folder = _current_folder()
    shown = table.rows[:MOST_ROWS]
    labels = [_labels(row.frame, folder) for row in shown]
    waited = [HEAD[1], *(units.seconds(row.waited_ns / NS) for row in shown)]
    share = [HEAD[2], *(units.share(row.waited_ns, table.waited_ns) for row in shown)]
    numbers = columns.aligned(list(zip(waited, share, strict=True)), texts=0)
    figures = len(numbers[0]) + 4
    width = max(columns.width(text) for text in (head, *(each[0] for each in labels)))
    for_waiters = max(MIN_WAITERS, min(3 * style.width // 8, ENOUGH_FOR_WAITERS))
    width = min(width, max(MAX_LABEL, style.width // 2), style.width - figures - for_waiters)
    width = max(width, MIN_LABEL)
    room = style.width - width - figures
    threads = [columns.printable(thread) for row in table.rows for thread, _ in row.waiters]
    drawn = [style.bold(f"{columns.pad(head, width)}  {numbers[0]}  {HEAD[3]}")]
    for row, texts, figure in zip(shown, labels, numbers[1:], strict=True):
        drawn.append(f"{_fitted(texts, width)}  {figure}  {_waiters(row, threads, room)}")
    more = table.rows[MOST_ROWS:]
    if more:
        rest_ns = sum(row.waited_ns for row in more)
        count = units.number(len(more), "more line")
        drawn.append(style.dim(f"and {count}: {_figures(rest_ns, table)}"))
    without = [
        f"{frame.function} {_figures(waited_ns, table)}"
        for frame, waited_ns in (
            (sides.HANDOFF, table.handoff_ns),
            (sides.NOT_RECORDED, table.not_recorded_ns),
        )
        if waited_ns >= LEAST_SHARE * table.waited_ns
    ]
    if without:
        drawn.append(style.dim("; ".join(without)))
    return drawn if style.blocks else [line.replace("µ", "u") for line in drawn]


def shortened(file: str, folder: str) -> str:
    """`file` relative to `folder` if it is below it, else its last two parts."""
    if folder and file.startswith(f"{folder.rstrip('/')}/"):
        return file[len(folder.rstrip("/")) + 1 :]
    return "/".join(file.rsplit("/", 2)[-2:]) if file.startswith("/") else file


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _largest_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def not_covered(report: GilReport) -> list[str]:
    """The waiting of other processes of the report, which a profile does not have; empty without
    any."""
    others = [each for each in report.processes() if each is not report]
    waited_s = sum(thread.waited_s for each in others for thread in each.threads)
    if not waited_s:
        return []
    where = "a child" if len(others) == 1 else f"{len(others):,} children"
    return [
        f"This profile has pid {report.pid} alone: {units.seconds(waited_s)} of waiting in {where} "
        "is not in it."
    ]


def _figures(waited_ns: int, table: ChargeTable) -> str:
    return f"{units.seconds(waited_ns / NS)}, {units.share(waited_ns, table.waited_ns)}"


def _labels(frame: Frame, folder: str) -> list[str]:
    """Names of the line, the longest first."""
    file = shortened(frame.file, folder)
    return [columns.printable(sides.label(frame, each)) for each in (file, file.split("/")[-1])]


def _fitted(texts: list[str], width: int) -> str:
    """The first of `texts` that fits in `width` columns, or the last with its function cut: the end
    has the line."""
    for text in texts:
        if columns.width(text) <= width:
            return columns.pad(text, width)
    function, bracket, where = texts[-1].rpartition(" (")
    spare = width - columns.width(bracket + where)
    if spare < MIN_FUNCTION:
        return columns.pad(texts[-1], width)
    return columns.pad(columns.cut(function, spare) + bracket + where, width)


def _waiters(row: ChargedLine, names: list[str], room: int) -> str:
    """As many of the threads that waited as fit in `room` columns, and how many more there are.
    `names` are those of all threads, which stay different."""
    # The unknown threads have no number.
    known = [each for each in row.waiters if each[0] != UNKNOWN_THREAD] or row.waiters
    threads = [columns.printable(thread) for thread, _ in known]
    if len(row.waiters) == 1:
        return columns.apart(names, room)[threads[0]]
    shares = [_percent(waited_ns, row.waited_ns) for _, waited_ns in known]
    shown = columns.apart(names, MAX_THREAD)
    for count in range(min(MOST_WAITERS, len(threads)), 0, -1):
        pairs = zip(threads[:count], shares, strict=False)
        text = ", ".join(f"{shown[thread]} {share}" for thread, share in pairs)
        if count < len(threads):
            text += f" and {len(threads) - count:,} more"
        if columns.width(text) <= room:
            return text
    end = f" {shares[0]}"
    if threads[1:]:
        end += f" and {len(threads) - 1:,} more"
    return columns.apart(names, max(room - len(end), 1))[threads[0]] + end


def _percent(part_ns: int, whole_ns: int) -> str:
    # A wait whose length is not known yet counts 0 ns.
    percent = 100 * part_ns / max(whole_ns, 1)
    return f"{percent:.0f} %" if percent >= 1 else "<1 %"
