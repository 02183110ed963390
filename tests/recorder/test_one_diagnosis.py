"""The report of a program, the caption of its trace and the recorder's verdict on its telemetry say
the same about one run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from heard import TICK, Ear
from launch import GIL_ENABLED, headway, read_json
from situations import verdict_on

from headway import _native
from headway.report import sentence
from headway.report.model import GilReport

pytestmark = [pytest.mark.serial, pytest.mark.slow("runs ten programs for 2.5 s each")]

PROGRAM = """
import gc, queue, sys, threading, time

LOCK, EVENT, QUEUE = threading.Lock(), threading.Event(), queue.SimpleQueue()
NUMBER = (1 << 3_000_000) - 1
END_S = time.monotonic() + 2.5

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
CAPTIONS = {
    "convoy": "This is the convoy: ",
    "long-hold": "These are long holds: ",
    "gil-bound": "The GIL limits what gets done. ",
}


class Views(NamedTuple):
    """The verdict's name and the report's sentence on one run, and the findings that the caption of
    its trace names, if there is one."""

    verdict: str
    sentence: str
    caption: set[str]


def views(folder: Path, work: tuple[str, ...]) -> Views:
    program, json_path, svg = (folder / name for name in ("run.py", "run.json", "run.svg"))
    program.write_text(PROGRAM)
    with Ear(folder) as ear:
        telemetry = ("--telemetry", ear.target, "--telemetry-interval", "0.5")
        # Without a GIL there is nothing to trace.
        outputs = ("--json", json_path, *(("--trace", svg) if GIL_ENABLED else ()))
        result = headway("run", *telemetry, *outputs, program, *work)
        assert result.returncode == 0, result.stderr
        ear.catch_up()
        ticks = ear.heard(TICK)
        raw = [each for each in ear.raw if _native.telemetry_parse(each)[0] == TICK]
    seconds = sum(tick.fields["sample_period"] for tick in ticks)
    holds = tuple(row for tick in ticks for row in tick.fields.get("holds", ()))
    found = verdict_on(*raw, seconds=seconds, holds=holds)

    said = sentence.sentence(GilReport.decode(read_json(json_path)))
    assert said in " ".join(result.stderr.split())

    if not GIL_ENABLED:
        return Views(found["name"], said, set())
    described = " ".join(" ".join(ElementTree.parse(svg).getroot().itertext()).split())
    shown = {name for name, words in CAPTIONS.items() if words in f"{described} "}
    return Views(found["name"], said, shown)


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
@pytest.mark.parametrize(
    ("work", "verdict", "sentences"),
    [
        (("pause", "compute"), "convoy", ("The convoy effect: ",)),
        (("pause", "multiply"), "long-hold", ("Long holds: ",)),
        (("compute",) * 4, "gil-bound", ("The GIL limits what gets done: ",)),
        (("rest",) * 3, "healthy", SHORT_WAITING),
    ],
    ids=["convoy", "long holds in C", "a full GIL", "nothing wrong"],
)
def test_each_view_says_the_same(
    tmp_path: Path, work: tuple[str, ...], verdict: str, sentences: tuple[str, ...]
) -> None:
    found = views(tmp_path, work)
    # Threads that all rest are idle to a recorder, which names that a verdict of its own.
    assert found.verdict.replace("idle", "healthy") == verdict, found
    assert found.sentence.startswith(sentences)
    assert found.caption == {verdict} & CAPTIONS.keys()


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
    assert found.verdict in verdicts, found
    assert found.sentence.startswith(sentence)
