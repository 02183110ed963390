"""Event loops in the report of a program: which one was late, why, and what helps. The recorder's
verdicts use the same rules. Pure."""

from __future__ import annotations

from headway.report import columns, thresholds, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.report.model import EventLoopRow, GilReport, LateLine

COMPUTED, WAITED, BLOCKED = "computed", "waited", "blocked"
PARTS = (COMPUTED, WAITED, BLOCKED)
# A second part of the late time from which on the sentence names it.
SECOND_PART = 0.2


class Lateness:
    """The late iterations of one event loop, or of several added up. Times are in seconds.

    - `watched_s`: how long the loops waited for events and ran iterations.
    - `longest_s`: the longest iteration.
    - `limit_s`: from which duration on an iteration is late.
    - `late`: how many iterations were late.
    - `parts_s`: the sums of their parts, in the order of PARTS.
    - `late_ran_blocked_s`: the part of the late blocked time in which the thread ran.
    - `present_s`: the longest iteration that has not ended, so far; 0 if there is none.
    """

    __slots__ = (
        "late",
        "late_ran_blocked_s",
        "limit_s",
        "longest_s",
        "parts_s",
        "present_s",
        "watched_s",
    )

    def __init__(
        self,
        *,
        watched_s: float,
        longest_s: float,
        limit_s: float,
        late: int,
        parts_s: tuple[float, float, float],
        late_ran_blocked_s: float,
        present_s: float = 0.0,
    ) -> None:
        self.watched_s = watched_s
        self.longest_s = longest_s
        self.limit_s = limit_s
        self.late = late
        self.parts_s = parts_s
        self.late_ran_blocked_s = late_ran_blocked_s
        self.present_s = present_s

    @property
    def late_s(self) -> float:
        """The sum of the late iterations that have ended."""
        return sum(self.parts_s)

    @property
    def share(self) -> float:
        """The part of the watched time that is in late iterations."""
        return self.late_s / self.watched_s if self.watched_s else 0.0

    @property
    def is_late(self) -> bool:
        if self.present_s >= thresholds.LOOP_LATE_S.value:
            return True
        return bool(self.late) and (
            self.longest_s >= thresholds.LOOP_LATE_S.value
            or self.late_s >= thresholds.LOOP_LATE_SHARE.value * self.watched_s
        )

    def by_length(self) -> list[tuple[str, float]]:
        """The parts of the late iterations, in seconds, the longest first."""
        return sorted(zip(PARTS, self.parts_s, strict=True), key=lambda part: -part[1])


def late(report: GilReport) -> EventLoopRow | None:
    """The event loop of the process that was late for longest; None if none was late."""
    rows = [row for row in report.event_loops or () if _lateness(row).is_late]
    return max(rows, key=lambda row: row.late_s + (row.iterating_now_s or 0.0), default=None)


def _lateness(row: EventLoopRow) -> Lateness:
    return Lateness(
        watched_s=row.polled_s + row.iteration.sum_s,
        longest_s=_longest_s(row),
        limit_s=row.late_limit_s,
        late=row.late,
        parts_s=(row.late_computed_s, row.late_waited_s, row.late_blocked_s),
        late_ran_blocked_s=row.late_ran_blocked_s,
        present_s=row.iterating_now_s or 0.0,
    )


def _longest_s(row: EventLoopRow) -> float:
    """The longest iteration. The difference of two snapshots has its bucket alone."""
    buckets = row.iteration.buckets
    return row.iteration.max_s or (buckets[-1][0] if buckets else 0.0)


def parts(row: EventLoopRow) -> list[tuple[str, float]]:
    """The parts of the late iterations, in seconds, the longest first."""
    return _lateness(row).by_length()


def sentence(report: GilReport, *, besides: bool = False) -> str | None:
    """Describes the event loop that was late for longest; None if none was late. `besides` another
    finding, which says what helps against waits."""
    row = late(report)
    if row is None:
        return None
    found, has_gil = _lateness(row), report.gil != "disabled"
    said = f"Late event loop: {described_row(row, has_gil)}"
    if not found.late:
        return said
    if besides and found.by_length()[0][0] == WAITED:
        return said
    return f"{said} {advice(found, has_gil, report.policy)}"


def described_row(row: EventLoopRow, has_gil: bool) -> str:
    """A sentence on the late iterations of a loop, and on one that has not ended."""
    found, name = _lateness(row), _name(row)
    present = f"for {units.seconds(found.present_s)}"
    if not found.late:
        line = row.lines[0] if row.lines else None
        where = "" if line is None else f": it {did(line.part, has_gil)}{_where(row, line.part)}"
        return f"{name} has not looked for events {present}{where}."
    said = described(found, name, has_gil, lambda part: _where(row, part))
    is_longest = found.present_s > found.longest_s
    return f"{said} It has looked for none {present}." if is_longest else said


def described(lateness: Lateness, name: str, has_gil: bool, where: Callable[[str], str]) -> str:
    """A sentence on the late iterations of `name`. `where` returns the code of a part, as in
    " in crunch (app.py:12)", or ""."""
    (first, first_s), (second, second_s), _ = lateness.by_length()
    cause = f"it {did(first, has_gil)}{where(first)}"
    if second_s >= SECOND_PART * lateness.late_s:
        cause += (
            f" for {units.seconds(first_s)}, and {did(second, has_gil)}{where(second)} for "
            f"{units.seconds(second_s)}"
        )
    longest = units.seconds(lateness.longest_s)
    if lateness.late == 1:
        return f"{name} did not look for events for {longest}: {cause}."
    return (
        f"{name} did not look for events for up to {longest}, {lateness.late:,} times for "
        f"{units.seconds(lateness.limit_s)} or longer, {units.seconds(lateness.late_s)} in all: "
        f"{cause}."
    )


def did(part: str, has_gil: bool) -> str:
    """Names the part of an iteration, as a verb."""
    if part == COMPUTED:
        return "computed"
    if part == WAITED:
        return "waited for the GIL" if has_gil else "waited for locks"
    return "blocked"


def _where(row: EventLoopRow, part: str) -> str:
    line = next((line for line in row.lines if line.part == part), None)
    return "" if line is None else in_code(part, code(line), line.thread)


def in_code(part: str, place: str, holder: str | None) -> str:
    """The end of a clause on a part, with its code and, for a wait, the thread that held the
    GIL."""
    if part == WAITED and holder is not None:
        return f", which {columns.name(holder)} held in {place}"
    return f" in {place}"


def code(line: LateLine) -> str:
    """A line of code as text: `crunch (app.py:12)`."""
    return place(line.function, line.file, line.line)


def place(function: str, file: str, line: int) -> str:
    if not file:
        return columns.name(function)
    return f"{columns.name(function)} ({columns.name(file.rpartition('/')[2])}:{line})"


def advice(lateness: Lateness, has_gil: bool, policy: str) -> str:
    """Says in a sentence how to make the longest part shorter."""
    part = lateness.by_length()[0][0]
    if part == COMPUTED:
        if not has_gil:
            return "Move it into a thread, with asyncio.to_thread()."
        return (
            "Move it into a thread, with asyncio.to_thread() and the policy priority, or into "
            "another process."
        )
    if part == WAITED:
        if not has_gil:
            return "Hold such locks for a shorter time, or wait for them in a thread."
        if policy == "interval":
            return "The policy priority ends waits for threads that compute in Python."
        return "No policy interrupts a call that keeps the GIL: move it to another process."
    if lateness.late_ran_blocked_s >= lateness.parts_s[PARTS.index(BLOCKED)] / 2:
        return "Such a call has dropped the GIL: asyncio.to_thread() is enough."
    return "Use an asynchronous library for it, or asyncio.to_thread()."


def _name(row: EventLoopRow) -> str:
    name = columns.name(row.name)
    return name if row.folded <= 1 else f"{row.folded:,} ended loops ({name})"
