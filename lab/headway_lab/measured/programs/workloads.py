"""ccbench's kinds of CPU-bound work, in calls of a fraction of a millisecond to some.

A is pure Python: digits of pi. B is C code that keeps the GIL: a regular expression. C is C code
that drops it: bz2; so are sha1 and zlib, which later versions of ccbench had. Knows nothing of
threads.
"""

from __future__ import annotations

import bz2
import hashlib
import re
import sys
import time
import zlib
from collections.abc import Callable

import window

PI_DIGITS = 50
TEXT_LINES = 400
BZ2_BYTES = 6_000
SHA1_BYTES = 150_000
ZLIB_BYTES = 15_000
ZLIB_LEVEL = 5
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
BZ2_DATA, SHA1_DATA, ZLIB_DATA = (
    (TEXT * 8).encode()[:size] for size in (BZ2_BYTES, SHA1_BYTES, ZLIB_BYTES)
)


def find_definitions() -> int:
    return len(DEFINITION.findall(TEXT))


def compress() -> int:
    return len(bz2.compress(BZ2_DATA))


def digest() -> bytes:
    return hashlib.sha1(SHA1_DATA).digest()


def compress_and_restore() -> int:
    return len(zlib.decompress(zlib.compress(ZLIB_DATA, ZLIB_LEVEL)))


WORKLOADS: dict[str, Callable[[], object]] = {
    "A": pi_digits,
    "B": find_definitions,
    "C": compress,
    "sha1": digest,
    "zlib": compress_and_restore,
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
