"""Passes of the garbage collector in the counters, and what programs do with `gc.callbacks`."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, Result, environment, headway, python, read_json

from headway import gil
from headway.meter import engine

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")

COLLECTS = """
import gc, sys, threading, time
{before}
old = [[number] for number in range(400_000)]
done = threading.Event()
def collect():
    for _ in range(8):
        gc.collect()
        time.sleep(0.005)
    done.set()
threading.Thread(target=collect, name="collects").start()
while not done.is_set():
    time.sleep(0.0005)
"""


def threads_of(folder: Path, code: str) -> dict[str, dict[str, Any]]:
    out = folder / "out.json"
    result = headway("run", "--json", out, "-c", code)
    assert result.returncode == 0, result.stderr
    return {row["name"]: row for row in read_json(out)["threads"]}


def counted(folder: Path, *arguments: str) -> Result:
    """Python with the counters, and nothing said."""
    return python(*arguments, env=environment(HEADWAY=f"report={folder / 'out.json'}"))


def test_passes_are_counted_for_who_ran_them_and_for_who_waited(tmp_path: Path) -> None:
    threads = threads_of(tmp_path, COLLECTS.format(before=""))
    collects, waits = threads["collects"], threads["MainThread"]
    assert collects["collections"] == 8
    assert 0 < collects["longest_collection_s"] <= collects["collected_s"] <= collects["held_s"]
    assert waits["waited_collection_s"] > 0.5 * waits["waited_s"]
    parts = ("preventable", "unanswered", "off_core", "collection")
    assert sum(waits[f"waited_{part}_s"] for part in parts) <= waits["waited_s"] * 1.001


def test_passes_are_in_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    result = headway("run", "--trace", trace, "-c", COLLECTS.format(before=""))
    assert result.returncode == 0, result.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    (track,) = [
        each["tid"]
        for each in events
        if each.get("args") == {"name": "garbage collections of collects"}
    ]
    of_track = [each for each in events if each.get("tid") == track and each["ph"] in "BE"]
    begins, ends = of_track[::2], of_track[1::2]
    assert [each["name"] for each in begins] == ["garbage collection"] * len(ends)
    assert 1 <= len(ends) <= 8
    assert all(begin["ts"] < end["ts"] for begin, end in zip(begins, ends, strict=True))


def test_a_finalizer_that_drops_the_gil_keeps_it_from_nobody(tmp_path: Path) -> None:
    code = """
import gc, time
class Slow:
    def __del__(self):
        time.sleep(0.3)
slow = Slow()
slow.itself = slow
del slow
gc.collect()
"""
    # The parts of the pass before and after the sleep.
    assert threads_of(tmp_path, code)["MainThread"]["collected_s"] < 0.2


@pytest.mark.parametrize(
    "before",
    [
        "gc.callbacks.clear()",
        *(
            pytest.param(each, marks=pytest.mark.slow("another program for the same"))
            for each in (
                "gc.callbacks[:] = [lambda *_: None]",
                "del gc.callbacks",
                "gc.callbacks = None",
            )
        ),
        "for each in gc.callbacks: each(); each(1); each(1, 2); each('start', 2); each('stop', {})",
        "for each in gc.callbacks: each('\\ud800', {}); each('stop', None); each(*range(9))",
    ],
)
def test_a_program_may_do_what_it_likes_with_the_callbacks(tmp_path: Path, before: str) -> None:
    code = COLLECTS.format(before=before)
    plain, measured = python("-c", code), counted(tmp_path, "-c", code)
    assert measured.returncode == plain.returncode == 0
    assert measured.stdout == plain.stdout
    assert measured.stderr == plain.stderr


def test_the_callback_is_there_once_while_the_meter_is() -> None:
    ours = engine._native().gil_note_collection
    gil.install()
    gil.install()
    try:
        assert [each for each in gc.callbacks if each is ours] == [ours]
    finally:
        gil.uninstall()
    assert not any(each is ours for each in gc.callbacks)


def test_a_forked_child_counts_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = (
        f"import os\nif os.fork():\n    os.wait()\nelse:\n    exec({COLLECTS.format(before='')!r})"
    )
    assert headway("run", "--json", out, "-c", code).returncode == 0
    report = read_json(out)
    (child,) = report["children"]
    collections = {row["name"]: row["collections"] for row in child["threads"]}
    assert collections["collects"] == 8
    assert sum(row["collections"] for row in report["threads"]) == 0


@pytest.mark.slow("runs CPython's tests")
def test_cpythons_own_tests_of_the_collector_pass(tmp_path: Path) -> None:
    tests = ("-m", "test", "-q", "test_gc")
    if python("-c", "import test.test_gc").returncode:
        pytest.skip("this CPython has no tests")
    plain, measured = python(*tests), counted(tmp_path, *tests)
    assert measured.returncode == plain.returncode, measured.stdout[-2000:]
    assert measured.stdout.count("FAIL") == plain.stdout.count("FAIL")
