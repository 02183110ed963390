"""The lines of code that event loops were late for, in the raw counters of a process."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Raw = dict[str, Any]
    # As `loops_late_stacks` of the extension module returns it.
    LateStack = tuple[int, int, int, list[tuple[str, str, int]], str | None, int, int, int]

PARTS = ("computed", "waited", "blocked")
# What tells two lines apart.
KEY = ("part", "function", "file", "line", "callback", "thread")
UNKNOWN = ("?", "", 0)


def add(raw: Raw, stacks: Iterable[LateStack]) -> None:
    """Gives each loop of the process its `lines`, the longest time first, and the sum of ended
    loops those of the others."""
    separate = {row["serial"] for row in raw["loops"]}
    names = {row["native_id"]: row["name"] for row in raw["threads"] if row["name"]}
    loops: dict[int, dict[tuple[Any, ...], Raw]] = {}
    for serial, _, part, stack, callback, holder, late_ns, readings in stacks:
        thread = names.get(holder, f"thread {holder}") if holder else None
        key = (PARTS[part], *(stack[-1] if stack else UNKNOWN), callback, thread)
        lines = loops.setdefault(serial if serial in separate else 0, {})
        line = lines.get(key)
        if line is None:
            line = lines[key] = dict(zip(KEY, key, strict=True)) | {"late_ns": 0, "readings": 0}
        line["late_ns"] += late_ns
        line["readings"] += readings
    for row in raw["loops"]:
        row["lines"] = ordered(loops.get(row["serial"], {}).values())


def difference(after: Iterable[Raw], before: Iterable[Raw]) -> list[Raw]:
    """What was added to the lines of a loop since `before`."""
    earlier = {tuple(line[name] for name in KEY): line for line in before}
    lines = []
    for line in after:
        former = earlier.get(tuple(line[name] for name in KEY))
        if former is not None:
            line = line | {
                name: max(0, line[name] - former[name]) for name in ("late_ns", "readings")
            }
        lines.append(line)
    return ordered(line for line in lines if line["late_ns"])


def ordered(lines: Iterable[Raw]) -> list[Raw]:
    return sorted(lines, key=lambda line: -int(line["late_ns"]))
