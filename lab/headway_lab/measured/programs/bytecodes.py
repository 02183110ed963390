"""The time that the interpreter takes for a bytecode of a simple loop. Knows nothing of threads."""

from __future__ import annotations

import dis
import time
from collections.abc import Callable

from countdown_threads import countdown

TRIAL_LOOPS = 100_000
NS = 1e9


def bytecodes_of_loop(function: Callable[..., object]) -> int:
    """The number of bytecodes in one iteration of the function's loop: from the target of its last
    jump back to that jump."""
    listed = [each for each in dis.get_instructions(function) if each.opname != "CACHE"]
    jump = [
        each
        for each in listed
        if each.opcode in dis.hasjrel + dis.hasjabs and each.argval < each.offset
    ][-1]
    return sum(jump.argval <= each.offset <= jump.offset for each in listed)


def bytecode_ns(seconds: float) -> float:
    """The CPU time of this thread for a bytecode."""
    countdown(TRIAL_LOOPS)
    loops = round(TRIAL_LOOPS * seconds * NS / loops_ns(TRIAL_LOOPS))
    return loops_ns(loops) / loops / bytecodes_of_loop(countdown)


def loops_ns(loops: int) -> int:
    began_ns = time.thread_time_ns()
    countdown(loops)
    return time.thread_time_ns() - began_ns
