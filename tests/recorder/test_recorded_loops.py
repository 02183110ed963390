"""The event loops of a program that reports to a recorder, in the recorder's API, metrics, verdict
and `headway top`: that they were late, and which part of the iterations took the time."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, HEADWAY, environment, run_main
from recorded import Recorded
from started_program import TIMEOUT_S, StartedProgram

from headway.recorder.metrics.definitions import METRICS

# What the second argument names runs in a coroutine, beside others that only wait for timers.
PROGRAM = """
import asyncio, sys, threading, time

NUMBER = (1 << 1_500_000) - 1

def block():
    time.sleep(0.15)

def compute():
    end_s = time.monotonic() + 0.15
    while time.monotonic() < end_s:
        pass

def rest():
    pass

def stick():
    time.sleep(60)

def multiply():
    while True:
        NUMBER * NUMBER

async def wait():
    while True:
        await asyncio.sleep(0.005)

async def work(function):
    while True:
        await asyncio.sleep(0.05)
        function()

async def main(name):
    if name == "wait":
        threading.Thread(target=multiply, daemon=True).start()
    await asyncio.gather(wait(), work(globals().get(name, rest)))

if sys.argv[1] == "none":
    time.sleep(60)
asyncio.run(main(sys.argv[1]))
"""
WINDOW_S = 3
# Where other programs of this machine take the cores, that comes first.
OTHERS = ("cores-taken",)


def running(folder: Path, recorder: Recorded, work: str) -> StartedProgram:
    program = folder / "loops.py"
    program.write_text(PROGRAM)
    telemetry = ("--telemetry", f"unix:{recorder.socket}", "--telemetry-interval", "0.5")
    command = [*HEADWAY, "run", *telemetry, str(program), work]
    return StartedProgram(
        subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    )


def measured(recorder: Recorded, has_loop: bool) -> dict[str, Any]:
    """The answer of `summary` for a window that has reports from its begin on, and knows the loop:
    on a busy machine asyncio is imported in the first window, or later."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found: dict[str, Any] = recorder.ask(f"summary?from=-{WINDOW_S}")
        knows_loop = found["summary"]["loops"] is not None
        if found["summary"]["period"] > WINDOW_S - 1 and knows_loop == has_loop:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def asked(folder: Path, work: str) -> tuple[dict[str, Any], str, str]:
    """The answer of `summary`, the metrics, and the screen of `headway top`."""
    recorder = Recorded(folder)
    try:
        program = running(folder, recorder, work)
        try:
            summary = measured(recorder, has_loop=work != "none")
            metrics = recorder.read("metrics")
            top = run_main("top", recorder.url, "--once", "--window", str(WINDOW_S)).stdout
        finally:
            program.end(signal.SIGKILL, kills=True)
    finally:
        recorder.stop()
    return summary, metrics, top


def samples(metrics: str, name: str) -> dict[str, float]:
    """The values of a metric by the label `part`, or under "" without it."""
    found = {}
    for line in metrics.splitlines():
        head, _, value = line.rpartition(" ")
        if head.partition("{")[0] == name:
            found[head.partition('part="')[2].partition('"')[0]] = float(value)
    return found


CASES = [
    ("block", "blocked", "it blocked"),
    ("compute", "computed", "it computed"),
    pytest.param(
        "wait",
        "waited",
        "it waited for the GIL",
        marks=pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
    ),
]


@pytest.mark.parametrize(("work", "part", "words"), CASES)
def test_a_late_loop_is_late_in_all_views_for_the_right_part(
    tmp_path: Path, work: str, part: str, words: str
) -> None:
    answer, metrics, top = asked(tmp_path, work)
    loops, verdict = answer["summary"]["loops"], answer["verdict"]
    shares = {each: loops[f"late_{each}"] for each in ("computed", "waited", "blocked")}
    assert max(shares, key=lambda each: shares[each]) == part, loops
    assert loops["late"] > 0
    late = samples(metrics, "headway_loop_late_time_seconds_total")
    assert max(late, key=lambda each: late[each]) == part, late
    assert samples(metrics, "headway_loop_late_iterations_total")[""] > 0
    assert samples(metrics, "headway_loop_lag_seconds_count")[""] > 2
    time = samples(metrics, "headway_loop_time_seconds_total")
    assert time.keys() == {"computed", "waited", "blocked", "polled"}
    # A thread that keeps the GIL in C has a verdict of its own, whose text names the loop too.
    expected = "late-loop" if work != "wait" else "long-hold"
    assert verdict["name"] in (expected, *OTHERS), verdict
    assert "not look" in verdict["text"], verdict
    assert words in verdict["text"], verdict
    assert verdict["title"] in top


def test_a_loop_that_does_not_come_back_is_late_before_it_does(tmp_path: Path) -> None:
    answer, _, top = asked(tmp_path, "stick")
    assert answer["verdict"]["name"] in ("late-loop", *OTHERS), answer["verdict"]
    assert "not looked for events" in answer["verdict"]["text"]
    assert answer["summary"]["loops"]["iterating"] > 1
    assert answer["verdict"]["title"] in top


def test_a_loop_in_time_is_not_late_and_a_program_without_one_has_no_figures(
    tmp_path: Path,
) -> None:
    answer, metrics, _ = asked(tmp_path, "rest")
    assert answer["verdict"]["name"] in ("idle", "healthy", *OTHERS), answer["verdict"]
    assert answer["summary"]["loop_iteration"]["count"] > 10
    assert samples(metrics, "headway_loop_time_seconds_total")["polled"] > 0
    (other := tmp_path / "none").mkdir()
    answer, metrics, top = asked(other, "none")
    assert answer["summary"]["loops"] is answer["summary"]["loop_iteration"] is None
    of_loops = [each.sample_name for each in METRICS if each.name.startswith("headway_loop")]
    assert len(of_loops) == 4
    assert not [each for each in of_loops if each in metrics]
    assert "event loop" not in top
