"""The contention profile of one process.

Every nanosecond that a thread waits for a GIL is charged twice: to the stack of the thread that
held the GIL, and to the stack of the thread that waited. The durations are exact. A stack is read
for every long hold and for a random choice of the short ones, and the charges of the holds between
two readings go to the second.

On a free-threaded build, threads wait for locks and events, and for other threads while one stops
the world. CPython does not record which thread they wait for, so these waits are charged to the
stack of the thread that waited alone.
"""

from __future__ import annotations

from typing import NamedTuple

# How a hold ended to whose stack a charge belongs.
FORCED, VOLUNTARY, RUNNING = "forced", "voluntary", "running"


class Frame(NamedTuple):
    """A call of a function. `line` is 0 if it is unknown."""

    function: str
    file: str
    line: int


# The names of frames that stand for no code; `file` is empty and `line` is 0.
CUT = "(deeper calls not kept)"
NO_PYTHON = "(no Python code)"
# The name of all threads whose charges have no thread.
UNKNOWN_THREAD = "(unknown thread)"


class Held(NamedTuple):
    """Time that threads waited while one thread held the GIL with one stack.

    - `stack`: the calls of the holder, the outermost first.
    - `thread`, `waiter`: the names of the holder and of a thread that waited.
    - `end`: FORCED or VOLUNTARY if the stack was read at a drop of that kind, RUNNING if it was
      read during the hold.
    - `waited_ns`: the sum over all waiting threads.
    - `readings`: how often the stack was read.
    """

    gil: str
    stack: tuple[Frame, ...]
    thread: str
    waiter: str
    end: str
    waited_ns: int
    readings: int


class Waited(NamedTuple):
    """Time that one thread waited with one stack: for a GIL, or on a free-threaded build for what
    `gil` names."""

    gil: str
    stack: tuple[Frame, ...]
    thread: str
    waited_ns: int
    readings: int


class Totals(NamedTuple):
    """Sums of one GIL. The charges of `Held` with `handoff_ns` and `held_not_recorded_ns` are
    `waited_ns`, and so are those of `Waited` with `waits_not_recorded_ns`.

    - `handoff_ns`: what threads waited between a drop and the next take.
    - `held_not_recorded_ns`, `waits_not_recorded_ns`: what no stack was read for, or what found no
      room.
    - `has_holders`: False for the waits of a free-threaded build. `gil` is their kind, and
      `held_not_recorded_ns` is all of `waited_ns`.
    """

    gil: str
    waited_ns: int
    handoff_ns: int
    held_not_recorded_ns: int
    waits_not_recorded_ns: int
    has_holders: bool = True


class Profile:
    """The profile of one process over `wall_ns`. `began_ns` is its beginning, in nanoseconds since
    1970."""

    def __init__(
        self,
        pid: int,
        program: str,
        began_ns: int,
        wall_ns: int,
        holders: list[Held] | None = None,
        waiters: list[Waited] | None = None,
        totals: list[Totals] | None = None,
    ) -> None:
        self.pid = pid
        self.program = program
        self.began_ns = began_ns
        self.wall_ns = wall_ns
        self.holders = holders or []
        self.waiters = waiters or []
        self.totals = totals or []

    @property
    def has_holders(self) -> bool:
        """False if no charge can have a holder: on a free-threaded build without a GIL."""
        return not self.totals or any(total.has_holders for total in self.totals)

    @property
    def waited_ns(self) -> int:
        return sum(total.waited_ns for total in self.totals)

    @property
    def handoff_ns(self) -> int:
        return sum(total.handoff_ns for total in self.totals)
