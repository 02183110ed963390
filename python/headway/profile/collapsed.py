"""One side of a profile as text: one stack a line, which flamegraph.pl and others read.

It is the holders' side, or the waiters' side if there are no holders.
"""

from __future__ import annotations

from headway.profile import sides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.profile.model import Frame, Profile

# Characters that separate frames or lines, for readers in any language, are replaced in names.
REPLACED = {ord(";"): ":", **dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")}


def write(profile: Profile) -> str:
    """The lines, the largest charge first: the frames, the outermost first, and nanoseconds."""
    sums: dict[str, int] = {}
    side = next(iter(sides.present(profile).values()))
    for stack, waited_ns in sides.by_stack(side):
        line = ";".join(map(_frame, stack))
        sums[line] = sums.get(line, 0) + waited_ns
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    return "".join(f"{line} {waited_ns}\n" for line, waited_ns in ranked)


def _frame(frame: Frame) -> str:
    return sides.label(frame).translate(REPLACED)
