"""The stacks that make threads wait, or for which event loops are late, as a tree of calls for a
flame graph.

A record has the waits by line, and those of the stacks for which others waited longest. The part of
a line that no stack has is a stack of its own, without callers. So the sum of all stacks is that of
all lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headway.profile.flame_tree import Node, grow
from headway.profile.model import CUT, Frame
from headway.profile.sides import Charge
from headway.recorder.records.calls import Call
from headway.recorder.records.stacks import frame_of
from headway.recorder.records.summary import Record

NS = 1e9
# The rows of a record for the lines that have no row of their own, and those whose name has not
# arrived.
OTHER, UNNAMED = Frame("(other)", "", 0), Frame("(not named yet)", "", 0)
# A loop of callers cannot go on for ever.
MAX_DEPTH = 256

# The calls of some identifiers with all their callers.
Find = Callable[[Iterable[str]], Mapping[str, Call]]


class Stack(NamedTuple):
    """The time that others waited during one stack. `frames` has the outermost call first;
    `endpoint` is "" without a request."""

    endpoint: str
    frames: tuple[Frame, ...]
    waited_ns: int


def stacks_of(record: Record, find: Find) -> list[Stack]:
    """All waiting of a record, by stack and endpoint."""
    lines: Counter[tuple[str, Frame]] = Counter()
    for line in record.get("lines", ()):
        frame = frame_of(line.get("line_function", ""), line.get("line_place", ""))
        lines[line.get("line_endpoint", ""), frame] += round(line.get("line_waited", 0.0) * NS)
    waited = {
        row.get("stack_id", ""): row.get("stack_waited", 0.0) for row in record.get("stacks", ())
    }
    found = _found(waited, find)
    for stack in found:
        lines[stack.endpoint, stack.frames[-1]] -= stack.waited_ns
    _take_from_rest(lines)
    for (endpoint, frame), rest_ns in lines.items():
        if rest_ns > 0:
            frames = (Frame(CUT, "", 0), frame) if frame.file else (frame,)
            found.append(Stack(endpoint, frames, rest_ns))
    return found


def late_stacks_of(record: Record, find: Find) -> list[Stack]:
    """The time for which event loops were late, by stack. The outermost call is what a loop did, as
    "(blocked)". What the stacks lack of a line is a stack of its own, without callers."""
    lines: Counter[tuple[Frame, Frame]] = Counter()
    for line in record.get("late_lines", ()):
        part = Frame(f"({line.get('late_part', 'other')})", "", 0)
        frame = frame_of(line.get("late_function", ""), line.get("late_place", ""))
        lines[part, frame] += round(line.get("late_time", 0.0) * NS)
    found = _found(
        {
            row.get("late_stack_id", ""): row.get("late_stack_time", 0.0)
            for row in record.get("late_stacks", ())
        },
        find,
    )
    for stack in found:
        lines[stack.frames[0], stack.frames[-1]] -= stack.waited_ns
    rest = ((part, frame, rest_ns) for (part, frame), rest_ns in lines.items() if rest_ns > 0)
    cut = Frame(CUT, "", 0)
    return [*found, *(Stack("", (part, cut, frame), rest_ns) for part, frame, rest_ns in rest)]


def _found(times: Mapping[str, float], find: Find) -> list[Stack]:
    """The stacks of innermost calls, with their seconds, whose names are all known."""
    calls = find(times)
    stacks = (_stack(innermost, calls, round(time_s * NS)) for innermost, time_s in times.items())
    return [stack for stack in stacks if stack is not None]


def _take_from_rest(lines: Counter[tuple[str, Frame]]) -> None:
    """Takes what stacks have beyond the rows of their lines from the rows in which such lines are:
    reports and sums keep the largest rows of lines and of stacks, each on its own."""
    missing_ns = -sum(rest_ns for rest_ns in lines.values() if rest_ns < 0)
    for frame in (OTHER, UNNAMED):
        taken_ns = min(missing_ns, max(lines["", frame], 0))
        lines["", frame] -= taken_ns
        missing_ns -= taken_ns


def _stack(innermost: str, calls: Mapping[str, Call], waited_ns: int) -> Stack | None:
    """The stack of an innermost call; `None` if a name of it is not known."""
    endpoint = ""
    frames: list[Frame] = []
    id_: str | None = innermost
    while id_ is not None:
        call = calls.get(id_)
        if call is None or len(frames) == MAX_DEPTH:
            return None
        if call.endpoint:
            endpoint = call.endpoint
        else:
            frames.append(frame_of(call.function, call.place))
        id_ = call.caller
    return Stack(endpoint, tuple(reversed(frames)), waited_ns) if frames else None


def tree(stacks: Iterable[Stack]) -> Node:
    """The tree of the calls below their endpoints, as far as they are large enough to be drawn."""
    charges = [
        Charge(
            "",
            (Frame(each.endpoint, "", 0), *each.frames) if each.endpoint else each.frames,
            each.waited_ns,
        )
        for each in stacks
    ]
    return grow(charges, Frame("all", "", 0))


def by_endpoint(stacks: Iterable[Stack]) -> list[tuple[str, int]]:
    """The waiting of each endpoint, the longest first."""
    sums: Counter[str] = Counter()
    for each in stacks:
        if each.endpoint:
            sums[each.endpoint] += each.waited_ns
    return sums.most_common()
