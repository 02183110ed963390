"""Ticks with as many lines and stacks as a tick has room for, of functions of the standard library.

A process sends such ticks if its threads hold the GIL in many lines. Every tick has others of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from headway import _native

TICK = 2
# The lines of the program, the endpoints, and the rows of lines and of stacks in a tick.
LINES, ENDPOINTS, ROWS = 100, 6, 32
FIRST_LINE = 16
MEDIAN_US, SPREAD = 5_000, 1.5


def crowded_ticks(count: int) -> list[bytes]:
    """The first one names all lines and calls."""
    choice = random.Random(22)
    lines = [
        {
            "line_number": FIRST_LINE + at,
            "line_function": code.co_name,
            "line_place": f"{code.co_filename}:{code.co_firstlineno + 1}",
            "line_endpoint": f"/shop/{at % ENDPOINTS}",
        }
        for at, code in zip(range(LINES), functions(), strict=False)
    ]
    calls = [{"call_number": 1, "line_function": "main", "line_place": "app.py:1"}]
    # A call of the line's function, and below it the endpoint.
    for at, line in enumerate(lines):
        names = {name: line[name] for name in ("line_function", "line_place")}
        calls.append({"call_number": 2 + 2 * at, "call_parent": 1, **names})
        endpoint = {"line_endpoint": line["line_endpoint"]}
        calls.append({"call_number": 3 + 2 * at, "call_parent": 2 + 2 * at, **endpoint})
    ticks = []
    for second in range(count):
        found = sorted(choice.sample(range(LINES), ROWS))
        times = [round(MEDIAN_US * choice.lognormvariate(0, SPREAD)) for _ in found]
        fields = {
            "line_numbers": [FIRST_LINE + at for at in found],
            "line_times": times,
            "stack_numbers": [3 + 2 * at for at in found],
            "stack_times": times,
        }
        names = {"line_names": lines, "calls": calls} if second == 0 else {}
        ticks.append(_native.telemetry_encode(TICK, 1, second, float(second), {**names, **fields}))
    return ticks


def functions() -> Iterator[CodeType]:
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        module = compile(path.read_bytes(), str(path), "exec")
        yield from (each for each in module.co_consts if isinstance(each, CodeType))
