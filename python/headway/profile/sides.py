"""The two sides of a profile as one list of charges each, whose sum is the time waited.

Time without a stack, in handoffs or not recorded, gets a stack of one frame with a name of its own,
so that every format shows it and no share is too large.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.profile.model import NO_PYTHON, Frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.profile.model import Profile

    Stack = tuple[Frame, ...]

HOLDERS, WAITERS = "holders", "waiters"
HANDOFF = Frame("(handoff)", "", 0)
NOT_RECORDED = Frame("(not recorded)", "", 0)
NO_STACK = (Frame(NO_PYTHON, "", 0),)


class Charge(NamedTuple):
    """Waited time with its stack, the outermost call first. `waiter` and `end` are "" on the
    waiters' side, and `thread` is "" for time without a stack."""

    gil: str
    stack: Stack
    waited_ns: int
    readings: int = 0
    thread: str = ""
    waiter: str = ""
    end: str = ""


def holders(profile: Profile) -> list[Charge]:
    charges = [
        Charge(
            each.gil,
            each.stack or NO_STACK,
            each.waited_ns,
            each.readings,
            each.thread,
            each.waiter,
            each.end,
        )
        for each in profile.holders
    ]
    for total in profile.totals:
        if total.has_holders:
            charges += _without_stack(total.gil, HANDOFF, total.handoff_ns)
            charges += _without_stack(total.gil, NOT_RECORDED, total.held_not_recorded_ns)
    return charges


def waiters(profile: Profile) -> list[Charge]:
    """A charge of a free-threaded build has the kind of the wait as its outermost call."""
    kinds = {
        total.gil: () if total.has_holders else (Frame(f"({total.gil})", "", 0),)
        for total in profile.totals
    }
    charges = [
        Charge(
            each.gil,
            (*kinds.get(each.gil, ()), *(each.stack or NO_STACK)),
            each.waited_ns,
            each.readings,
            each.thread,
        )
        for each in profile.waiters
    ]
    for total in profile.totals:
        charges += _without_stack(total.gil, NOT_RECORDED, total.waits_not_recorded_ns)
    return charges


def present(profile: Profile) -> dict[str, list[Charge]]:
    """The charges of each side that the profile has."""
    sides = {HOLDERS: holders(profile)} if profile.has_holders else {}
    return {**sides, WAITERS: waiters(profile)}


def by_stack(charges: Iterable[Charge]) -> list[tuple[Stack, int]]:
    """Each stack once with its sum, the largest first. Stacks without waited time are left out."""
    sums: dict[Stack, int] = {}
    for charge in charges:
        if charge.waited_ns:
            sums[charge.stack] = sums.get(charge.stack, 0) + charge.waited_ns
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))


def place(frame: Frame, file: str | None = None) -> str:
    """`file:line`, as far as they are known. `file` replaces the frame's."""
    name = frame.file if file is None else file
    return f"{name}:{frame.line}" if name and frame.line > 0 else name


def label(frame: Frame, file: str | None = None) -> str:
    """`function (file:line)`, as far as they are known. `file` replaces the frame's."""
    where = place(frame, file)
    return f"{frame.function} ({where})" if where else frame.function


def _without_stack(gil: str, frame: Frame, waited_ns: int) -> list[Charge]:
    return [Charge(gil, (frame,), waited_ns)] if waited_ns else []
