"""ccbench's three kinds of CPU-bound work, in calls of a fraction of a millisecond to some.

A is pure Python: digits of pi. B is C code that keeps the GIL: a regular expression. C is C code
that drops it: bz2. Knows nothing of threads.
"""

from __future__ import annotations

import bz2
import re
import sys
import time
from collections.abc import Callable

import window

PI_DIGITS = 50
TEXT_LINES = 400
BZ2_BYTES = 6_000
CALLS = 200


def pi_digits(count: int = PI_DIGITS) -> str:
    """The spigot of Rabinowitz and Wagon in Gibbons's form, which needs no end to be known."""
    digits: list[str] = []
    q, r, t, k, n, m = 1, 0, 1, 1, 3, 3
    while len(digits) < count:
        if 4 * q + r - t < n * t:
            digits.append(str(n))
            q, r, n = 10 * q, 10 * (r - n * t), 10 * (3 * q + r) // t - 10 * n
        else:
            q, r, t, n = q * k, (2 * q + r) * m, t * m, (q * (7 * k + 2) + r * m) // (t * m)
            k, m = k + 1, m + 2
    return "".join(digits)


TEXT = "\n".join(
    f"    def name_{line}(self, key=lambda: {line}): return {line % 7}"
    for line in range(TEXT_LINES)
)
DEFINITION = re.compile(r"^\s*(def|class)\s+\w+|.*\blambda\b\s*:|^\s*@\w+", re.MULTILINE)
DATA = (TEXT * 2).encode()[:BZ2_BYTES]


def find_definitions() -> int:
    return len(DEFINITION.findall(TEXT))


def compress() -> int:
    return len(bz2.compress(DATA))


WORKLOADS: dict[str, Callable[[], object]] = {
    "A": pi_digits,
    "B": find_definitions,
    "C": compress,
}


def main() -> None:
    """`workloads.py NAME`: how long a call takes, in seconds, one by one."""
    work = WORKLOADS[sys.argv[1]]
    work()
    calls_s = []
    for _ in range(CALLS):
        began = time.perf_counter()
        work()
        calls_s.append(time.perf_counter() - began)
    window.answer(calls_s=calls_s)


if __name__ == "__main__":
    main()
