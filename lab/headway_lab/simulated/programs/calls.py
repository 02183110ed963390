"""Measures the processor time of each call of one of ccbench's workloads.

calls.py CORE WORKLOAD COUNT
"""

from __future__ import annotations

import os
import sys
import time

import window
from workloads import WORKLOADS


def main() -> None:
    core, name, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.sched_setaffinity(0, {core})
    work = WORKLOADS[name]
    work()
    calls_ns = []
    for _ in range(count):
        began_ns = time.thread_time_ns()
        work()
        calls_ns.append(time.thread_time_ns() - began_ns)
    window.answer(calls_ns=calls_ns)


if __name__ == "__main__":
    main()
