"""The lines of late iterations: what the reader of stacks owes to a report that comes at once."""

from __future__ import annotations

import pytest
from launch import headway

pytestmark = pytest.mark.free_threading

# The first late iteration starts the reader.
LAST_STALL = """
import asyncio, time
from headway import gil

def first():
    time.sleep(0.1)

def last():
    time.sleep(0.1)

async def main():
    await asyncio.sleep(0.01)
    first()
    await asyncio.sleep(0.1)
    last()
    await asyncio.sleep(0)
    (loop,) = gil.snapshot().report().event_loops
    print(loop.late, {line.function for line in loop.lines if line.part == "blocked"})

asyncio.run(main())
"""


def test_an_iteration_that_has_just_ended_has_its_lines() -> None:
    result = headway("run", "-c", LAST_STALL)
    assert result.stdout == "2 {'last'}\n", result.stderr
