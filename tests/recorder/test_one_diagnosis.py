"""The report of a program, the caption of its trace, and the recorder's API, metrics, comparison
and `headway top` say the same about one run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from launch import GIL_ENABLED, HEADWAY, environment, read_json
from recorded import Recorded
from started_program import TIMEOUT_S, StartedProgram

from headway.report import sentence
from headway.report.model import GilReport

pytestmark = [pytest.mark.serial, pytest.mark.slow("runs twelve programs for 6 s each")]

PROGRAM = """
import asyncio, gc, queue, sys, threading, time

LOCK, EVENT, QUEUE = threading.Lock(), threading.Event(), queue.SimpleQueue()
NUMBER = (1 << 3_000_000) - 1
END_S = time.monotonic() + 6

def pause():
    time.sleep(0.0003)

def rest():
    time.sleep(0.01)

def compute():
    sum(range(500))

def fight():
    # The sleep makes the others wait: they spin for a lock that is soon free.
    with LOCK:
        sum(range(50_000))
        time.sleep(0.003)

def collect():
    gc.collect()

def poll():
    EVENT.wait(0.1)

def produce():
    time.sleep(0.2)
    QUEUE.put(None)

def consume():
    QUEUE.get()

def multiply():
    NUMBER * NUMBER

async def wait_and_block():
    for _ in range(5):
        await asyncio.sleep(0.02)
        time.sleep(0.15)

def loop():
    asyncio.run(wait_and_block())

def repeat(work):
    while time.monotonic() < END_S:
        work()
    # Consumers may still wait.
    for _ in threads:
        QUEUE.put(None)

threads = [threading.Thread(target=repeat, args=(globals()[name],)) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
SHORT_WAITING = ("No waiting: ", "Hardly any waiting: ", "A little waiting: ")
NOTHING_TO_WAIT_FOR = "The GIL is disabled (free-threaded): there is nothing to wait for"
VIEWS = {"API", "metrics", "comparison", "top"}
WINDOW_S = 2
CAPTIONS = {
    "convoy": "This is the convoy: ",
    "long-hold": "These are long holds: ",
    "garbage-collection": "This is garbage collection, ",
    "gil-bound": "The GIL limits what gets done. ",
}


class Views(NamedTuple):
    """The recorder's verdict in each of its views, the report's sentence, and the findings that the
    caption of the trace names, if there is one."""

    verdicts: dict[str, str]
    sentence: str
    caption: set[str]


def known_seconds(recorder: Recorded) -> float:
    """How much of the window the ticks cover. They end up to one tick before it does."""
    sample: dict[str, float] = recorder.ask(f"summary?from=-{WINDOW_S}")["verdict"]["sample"]
    return sample["seconds"]


def views(folder: Path, work: tuple[str, ...]) -> Views:
    program, json_path, svg = (folder / name for name in ("run.py", "run.json", "run.svg"))
    program.write_text(PROGRAM)
    recorder = Recorded(folder)
    try:
        telemetry = ("--telemetry", f"unix:{recorder.socket}", "--telemetry-interval", "0.5")
        # Without a GIL there is nothing to trace.
        outputs = ("--json", json_path, *(("--trace", svg) if GIL_ENABLED else ()))
        command = [*HEADWAY, "run", *telemetry, *map(str, outputs), str(program), *work]
        running = StartedProgram(
            subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        )
        try:
            # A number of datagrams would not do: some are no ticks.
            deadline = time.monotonic() + TIMEOUT_S
            while (known_s := known_seconds(recorder)) < WINDOW_S:
                assert time.monotonic() < deadline, f"{known_s} s of {WINDOW_S} s are known"
                time.sleep(0.05)
            verdicts = recorder.verdicts(WINDOW_S)
        finally:
            status = running.end(None)
        assert status == 0, running.stderr
    finally:
        recorder.stop()
    said = sentence.sentence(GilReport.decode(read_json(json_path)))
    assert said in " ".join(running.stderr.split())
    if not GIL_ENABLED:
        return Views(verdicts, said, set())
    described = " ".join(" ".join(ElementTree.parse(svg).getroot().itertext()).split())
    shown = {name for name, words in CAPTIONS.items() if words in f"{described} "}
    return Views(verdicts, said, shown)


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
@pytest.mark.parametrize(
    ("work", "verdict", "sentences"),
    [
        (("pause", "compute"), "convoy", ("The convoy effect: ",)),
        (("pause", "multiply"), "long-hold", ("Long holds: ",)),
        (("pause", "collect"), "garbage-collection", ("Garbage collection: ",)),
        (("compute",) * 4, "gil-bound", ("The GIL limits what gets done: ",)),
        (("loop",), "late-loop", ("Late event loop: ",)),
        (("rest",) * 3, "healthy", SHORT_WAITING),
    ],
    ids=[
        "convoy",
        "long holds in C",
        "garbage collection",
        "a full GIL",
        "a late event loop",
        "nothing wrong",
    ],
)
def test_each_view_says_the_same(
    tmp_path: Path, work: tuple[str, ...], verdict: str, sentences: tuple[str, ...]
) -> None:
    found = views(tmp_path, work)
    # Threads that all rest are idle to a recorder, which names that a verdict of its own.
    if found.verdicts["API"] == "cores-taken":
        assert (set(found.verdicts.values()), found.verdicts.keys()) == ({"cores-taken"}, VIEWS)
        pytest.skip("other programs take the cores of this machine")
    in_all = {name.replace("idle", "healthy") for name in found.verdicts.values()}
    assert (in_all, found.verdicts.keys()) == ({verdict}, VIEWS), found
    assert found.sentence.startswith(sentences)
    assert found.caption == {verdict} & CAPTIONS.keys()


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
def test_each_view_says_that_other_programs_take_the_cores(tmp_path: Path) -> None:
    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        found = views(tmp_path, ("compute",) * 2)
    finally:
        for each in others:
            each.kill()
            each.wait()
    assert found.verdicts == dict.fromkeys(VIEWS, "cores-taken")
    assert found.sentence.startswith("Other programs take the cores: ")


@pytest.mark.skipif(GIL_ENABLED, reason="this interpreter runs with a GIL")
@pytest.mark.free_threading
@pytest.mark.parametrize(
    ("work", "verdicts", "sentence"),
    [
        (("fight",) * 4, {"lock-contention"}, "Lock contention limits what gets done: "),
        (
            ("collect", "compute", "compute"),
            {"stopped-world"},
            "Stopped worlds limit what gets done: ",
        ),
        (("loop",), {"late-loop"}, "Late event loop: "),
        (("rest",) * 3, {"idle", "healthy"}, NOTHING_TO_WAIT_FOR),
        (("poll",) * 3 + ("compute",), {"healthy", "cpu-bound"}, NOTHING_TO_WAIT_FOR),
        (
            ("produce", "produce", "consume", "consume", "compute"),
            {"healthy", "cpu-bound"},
            NOTHING_TO_WAIT_FOR,
        ),
        (("compute",) * 4, {"healthy", "cpu-bound"}, NOTHING_TO_WAIT_FOR),
    ],
    ids=[
        "one lock",
        "a stopped world",
        "a late event loop",
        "nothing wrong",
        "threads that poll",
        "threads that wait for work",
        "threads that compute",
    ],
)
def test_each_view_says_the_same_without_a_gil(
    tmp_path: Path, work: tuple[str, ...], verdicts: set[str], sentence: str
) -> None:
    """A report does not know the number of cores, so to it full cores are nothing wrong."""
    found = views(tmp_path, work)
    assert found.verdicts.keys() == VIEWS, found
    assert len(set(found.verdicts.values())) == 1, found
    assert found.verdicts["API"] in verdicts, found
    assert found.sentence.startswith(sentence)
