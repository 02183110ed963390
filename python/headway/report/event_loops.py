"""Event loops in the report of a program: which one was late, why, and what helps. Pure."""

from __future__ import annotations

from headway.report import columns, thresholds, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.report.model import EventLoopRow, GilReport, LateLine

COMPUTED, WAITED, BLOCKED = "computed", "waited", "blocked"
# A second part of the late time from which on the sentence names it.
SECOND_PART = 0.2


def late(report: GilReport) -> EventLoopRow | None:
    """The event loop of the process that was late for longest; None if none was late."""
    rows = [row for row in report.event_loops or () if _is_late(row)]
    return max(rows, key=lambda row: row.late_s, default=None)


def _is_late(row: EventLoopRow) -> bool:
    watched_s = row.polled_s + row.iteration.sum_s
    longest_s = row.iteration.max_s or 0.0
    return bool(row.late) and (
        longest_s >= thresholds.LOOP_LATE_S.value
        or row.late_s >= thresholds.LOOP_LATE_SHARE.value * watched_s
    )


def parts(row: EventLoopRow) -> list[tuple[str, float]]:
    """The parts of the late iterations, in seconds, the longest first."""
    found = [
        (COMPUTED, row.late_computed_s),
        (WAITED, row.late_waited_s),
        (BLOCKED, row.late_blocked_s),
    ]
    return sorted(found, key=lambda part: -part[1])


def sentence(report: GilReport, *, besides: bool = False) -> str | None:
    """Describes the event loop that was late for longest; None if none was late. `besides` another
    finding, which says what helps against waits."""
    row = late(report)
    if row is None:
        return None
    part = parts(row)[0][0]
    said = f"Late event loop: {described(row, has_gil=report.gil != 'disabled')}."
    return said if besides and part == WAITED else f"{said} {_advice(row, part, report)}"


def described(row: EventLoopRow, *, has_gil: bool) -> str:
    """How late a loop was, and why."""
    (first, first_s), (second, second_s), _ = parts(row)
    cause = f"it {_did(first, has_gil)}{_where(row, first)}"
    if second_s >= SECOND_PART * row.late_s:
        cause += (
            f" for {units.seconds(first_s)}, and {_did(second, has_gil)}{_where(row, second)} for "
            f"{units.seconds(second_s)}"
        )
    longest = units.seconds(row.iteration.max_s)
    if row.late == 1:
        return f"{_name(row)} did not look for events for {longest}: {cause}"
    return (
        f"{_name(row)} did not look for events for up to {longest}, {row.late:,} times for "
        f"{units.seconds(row.late_limit_s)} or longer, {units.seconds(row.late_s)} in all: {cause}"
    )


def _did(part: str, has_gil: bool) -> str:
    if part == COMPUTED:
        return "computed"
    if part == WAITED:
        return "waited for the GIL" if has_gil else "waited for locks"
    return "blocked"


def _where(row: EventLoopRow, part: str) -> str:
    line = next((line for line in row.lines if line.part == part), None)
    if line is None:
        return ""
    place = code(line)
    if part == WAITED and line.thread is not None:
        return f", which {columns.name(line.thread)} held in {place}"
    return f" in {place}"


def code(line: LateLine) -> str:
    """A line of code as text: `crunch (app.py:12)`."""
    if not line.file:
        return columns.name(line.function)
    file = columns.name(line.file.rpartition("/")[2])
    return f"{columns.name(line.function)} ({file}:{line.line})"


def _advice(row: EventLoopRow, part: str, report: GilReport) -> str:
    if part == COMPUTED:
        if report.gil == "disabled":
            return "Move it into a thread, with asyncio.to_thread()."
        return (
            "Move it into a thread, with asyncio.to_thread() and the policy priority, or into "
            "another process."
        )
    if part == WAITED:
        if report.gil == "disabled":
            return "Hold such locks for a shorter time, or wait for them in a thread."
        if report.policy == "interval":
            return "The policy priority ends waits for threads that compute in Python."
        return "No policy interrupts a call that keeps the GIL: move it to another process."
    if row.ran_blocked_s >= row.late_blocked_s / 2:
        return "Such a call has dropped the GIL: asyncio.to_thread() is enough."
    return "Use an asynchronous library for it, or asyncio.to_thread()."


def _name(row: EventLoopRow) -> str:
    name = columns.name(row.name)
    return name if row.folded <= 1 else f"{row.folded:,} ended loops ({name})"
