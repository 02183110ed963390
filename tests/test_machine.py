"""The use of the cores while the meter was there: `machine` in a report."""

from __future__ import annotations

import json
import os
from typing import Any

from launch import python

PROGRAM = """
import json, os, time
from headway import gil

def compute(seconds):
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass

def machine(snapshot):
    return snapshot.to_dict()["machine"]

gil.install()
compute(0.2)
first = gil.snapshot()
gil.install()
compute(0.2)
second = gil.snapshot()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps(machine(gil.snapshot())).encode())
    os._exit(0)
os.wait()
gil.uninstall()
removed = gil.snapshot()
compute(0.3)
print(json.dumps({
    "first": machine(first),
    "second": machine(second),
    "between": machine(second - first),
    "child": json.loads(os.read(read, 1000)),
    "removed": machine(removed),
    "later": machine(gil.snapshot()),
}))
"""


def found() -> dict[str, Any]:
    result = python("-c", PROGRAM)
    assert result.returncode == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def test_the_figures_are_of_the_time_of_the_counters() -> None:
    told = found()
    assert told["first"]["cores"] == len(os.sched_getaffinity(0))
    # A second installation goes on with the first one's counters.
    for key in ("busy_s", "own_s", "cpu_s"):
        assert told["second"][key] >= told["first"][key] >= 0
        assert told["between"][key] >= 0
    assert told["between"]["cpu_s"] >= 0.1
    assert told["second"]["busy_s"] >= 0.1
    # A forked child's counters begin later than the parent's.
    assert told["child"] is None
    # The counters grow no more.
    assert told["later"] == told["removed"]
