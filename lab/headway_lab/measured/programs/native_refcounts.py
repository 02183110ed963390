"""Counts references in native threads, and says what a pair of increment and decrement takes.

native_refcounts.py KIND THREADS one|own SECONDS

All threads count the references of one object, or each those of its own. For the interpreter's
headway-lab, whose module counts.
"""

from __future__ import annotations

import sys
import time

import window
from bytecodes import bytecode_ns

from headway_lab import _native

TRIAL_PAIRS = 50_000


def main() -> None:
    kind, threads, shared = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "one"
    seconds = float(sys.argv[4])
    window.say()
    window.sleep_until(window.hear_window().begin_ns)
    a_bytecode_ns = bytecode_ns(seconds)
    trial_ns, _ = _native.refcount_measure(kind, threads, TRIAL_PAIRS, shared)
    pairs = max(TRIAL_PAIRS, round(TRIAL_PAIRS * seconds * window.NS / trial_ns))
    began_ns = time.process_time_ns()
    elapsed_ns, wrong_by = _native.refcount_measure(kind, threads, pairs, shared)
    cpu_ns = time.process_time_ns() - began_ns
    window.answer(
        cpu_ns=cpu_ns / pairs / threads,
        elapsed_ns=elapsed_ns / pairs,
        wrong_by=wrong_by,
        bytecode_ns=a_bytecode_ns,
    )


if __name__ == "__main__":
    main()
