"""Programs under `headway run --trace`, and a reader of Chrome traces that is not Headway's."""

from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from launch import headway, read_json

# Threads that compute, one that naps, and their ends, with names that Python gives; all have ended
# when the trace does, but the main one.
CONTENDED = """\
import threading, time

def compute():
    ends = time.monotonic() + 0.25
    while time.monotonic() < ends:
        sum(range(500))

def nap():
    for _ in range(20):
        time.sleep(0.004)

threads = [threading.Thread(target=compute, name=f"hog-{n}") for n in range(2)]
threads.append(threading.Thread(target=nap, name='napper "é"'))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


class Slice(NamedTuple):
    track: str
    name: str
    from_ns: int
    to_ns: int
    told: dict[str, Any]


class Chrome:
    """The contents of a Chrome trace, by the Trace Event Format."""

    def __init__(self, path: Path) -> None:
        trace = json.loads(path.read_text(), parse_float=Decimal)
        self.notes: dict[str, Any] = trace["otherData"]
        events = trace["traceEvents"]
        named = [event for event in events if event["ph"] == "M"]
        self.names = {e["tid"]: e["args"]["name"] for e in named if e["name"] == "thread_name"}
        (self.process,) = {e["args"]["name"] for e in named if e["name"] == "process_name"}
        self.pids = {event["pid"] for event in events}
        self.marks = [event for event in events if event["ph"] == "i"]
        self.flows = [event for event in events if event["ph"] in "sf"]
        self.slices: list[Slice] = []
        open_slices: dict[int, Any] = {}
        for event in events:
            if event["ph"] == "B":
                # No slice of ours lies in another.
                assert event["tid"] not in open_slices
                open_slices[event["tid"]] = event
            elif event["ph"] == "E":
                begin = open_slices.pop(event["tid"])
                track = self.names[event["tid"]]
                times = in_ns(begin["ts"]), in_ns(event["ts"])
                self.slices.append(Slice(track, begin["name"], *times, begin["args"]))
        assert not open_slices

    def of(self, track: str, name: str = "") -> list[Slice]:
        return [one for one in self.slices if one.track == track and name in ("", one.name)]

    def tracks(self) -> dict[str, list[Slice]]:
        tracks: dict[str, list[Slice]] = defaultdict(list)
        for one in self.slices:
            tracks[one.track].append(one)
        return tracks


def in_ns(microseconds: Decimal | int) -> int:
    ns = microseconds * 1000
    assert ns == int(ns)
    return int(ns)


def length_s(slices: list[Slice]) -> float:
    return sum(one.to_ns - one.from_ns for one in slices) / 1e9


def traced(tmp_path: Path, code: str, *options: str) -> tuple[Chrome, dict[str, Any], str]:
    """The trace, the report and what was said of a program that ended well."""
    trace, report = tmp_path / "trace.json", tmp_path / "report.json"
    result = headway("run", "--trace", trace, "--json", report, *options, "-c", code)
    assert result.returncode == 0, result.stderr
    return Chrome(trace), read_json(report), result.stderr
