"""The lines of code that event loops were late for, in the raw counters of a process."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    Raw = dict[str, Any]

PARTS = ("computed", "waited", "blocked")
# The fields by which two lines of a loop differ.
KEY = ("part", "function", "file", "line", "callback", "thread")


def distribute(raw: Raw) -> None:
    """Gives each loop of the process, and of its children, its `lines`, the longest time first, and
    the sum of ended loops those of the others."""
    for child in raw["children"]:
        distribute(child)
    separate = {row["serial"] for row in raw["loops"]}
    names = {row["native_id"]: row["name"] for row in raw["threads"] if row["name"]}
    loops: dict[int, dict[tuple[Any, ...], Raw]] = {}
    for found in raw["late_lines"]:
        line = {
            "part": PARTS[found["part"] % len(PARTS)],
            "function": found["function"] or "?",
            "file": found["file"],
            "line": found["line"],
            "callback": found["callback"] or None,
            "thread": _thread(found["holder"], names),
            "late_ns": found["late_ns"],
            "readings": found["readings"],
        }
        lines = loops.setdefault(found["serial"] if found["serial"] in separate else 0, {})
        same = lines.setdefault(tuple(line[name] for name in KEY), line)
        if same is not line:
            same["late_ns"] += line["late_ns"]
            same["readings"] += line["readings"]
    for row in raw["loops"]:
        row["lines"] = ordered(loops.get(row["serial"], {}).values())


def _thread(native_id: int, names: dict[int, str]) -> str | None:
    return names.get(native_id, f"thread {native_id}") if native_id else None


def difference(after: Iterable[Raw], before: Iterable[Raw]) -> list[Raw]:
    """The additions to the lines of a loop since `before`."""
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
