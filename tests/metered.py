"""Runs code with the meter on, each in a process of its own, for the tests of the meter."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

from launch import execute

Report = dict[str, Any]

PREAMBLE = """\
import ctypes, json, os, sys, threading, time
from headway import gil

def show(value):
    print(json.dumps(value))
"""

# Cancels threads with pthread_cancel.
CANCELLING = """
        libc = ctypes.PyDLL(None)  # Its calls keep the GIL.
        def cancel(thread):
            libc.pthread_cancel(ctypes.c_void_p(thread.ident))
            return f"/proc/self/task/{thread.native_id}".encode()
        def started(target):
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            while thread.native_id is None: time.sleep(0.001)
            time.sleep(0.05)
            return thread
"""


def run_metered(code: str, *options: str, **subprocess_options: Any) -> list[Any]:
    """The values that `code` showed with `show(...)`; `gil` is imported. Its status must be 0."""
    source = PREAMBLE + textwrap.dedent(code)
    result = execute([sys.executable, *options, "-c", source], **subprocess_options)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def assert_balanced(report: Report) -> None:
    """The balance of docs/design/words.md: exact counts; times to a rounding error of floats."""
    for gil in report["gils"]:
        rows = [row for row in report["threads"] if row["gil"] == gil["id"]]
        drops = gil["voluntary_drops"] + gil["forced_drops"]
        assert gil["takes"] + gil["held_at_open"] == drops + gil["held_now"], gil
        assert gil["anomalies"] == 0
        for key in ("takes", "contended_takes", "voluntary_drops", "forced_drops"):
            assert gil[key] == sum(row[key] for row in rows), key
        assert close(gil["held_s"], sum(row["held_s"] for row in rows), gil["wall_s"])
        assert close(gil["held_s"] + gil["handoff_s"] + gil["idle_s"], gil["wall_s"], gil["wall_s"])
        assert gil["wait"]["count"] == gil["contended_takes"]
        assert gil["hold"]["count"] == drops
        for row in rows:
            assert row["wait"]["count"] == row["contended_takes"] <= row["takes"]
            assert close(row["wait"]["sum_s"], row["waited_s"], gil["wall_s"])
            assert sum(count for _, count in row["hold"]["buckets"]) == row["hold"]["count"]
    for child in report["children"]:
        if not child.get("alive"):
            assert_balanced(child)


def close(one: float, other: float, wall: float) -> bool:
    return abs(one - other) <= 1e-9 * max(1.0, wall)
