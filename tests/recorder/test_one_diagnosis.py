"""The report of a program, the caption of its trace and the recorder's verdict on its telemetry say
the same about one run."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from heard import TICK, Ear
from launch import GIL_ENABLED, headway, read_json
from situations import verdict_on

from headway import _native
from headway.report import summary
from headway.report.model import GilReport

pytestmark = [
    pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
    pytest.mark.serial,
    pytest.mark.slow("runs four programs for 2.5 s each"),
]

PROGRAM = """
import sys, threading, time

NUMBER = (1 << 3_000_000) - 1
END_S = time.monotonic() + 2.5

def pause():
    time.sleep(0.0003)

def rest():
    time.sleep(0.01)

def compute():
    sum(range(500))

def multiply():
    NUMBER * NUMBER

def repeat(work):
    while time.monotonic() < END_S:
        work()

threads = [threading.Thread(target=repeat, args=(globals()[name],)) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
SHORT_WAITING = ("No waiting: ", "Hardly any waiting: ", "A little waiting: ")
CAPTIONS = {
    "convoy": "This is the convoy: ",
    "long-hold": "These are long holds: ",
    "gil-bound": "The GIL limits what gets done. ",
}


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
    program, json_path, svg = (tmp_path / name for name in ("run.py", "run.json", "run.svg"))
    program.write_text(PROGRAM)
    with Ear(tmp_path) as ear:
        telemetry = ("--telemetry", ear.target, "--telemetry-interval", "0.5")
        outputs = ("--json", json_path, "--trace", svg)
        result = headway("run", *telemetry, *outputs, program, *work)
        assert result.returncode == 0, result.stderr
        ear.catch_up()
        ticks = ear.heard(TICK)
        raw = [each for each in ear.raw if _native.telemetry_parse(each)[0] == TICK]
    seconds = sum(tick.fields["sample_period"] for tick in ticks)
    holds = tuple(row for tick in ticks for row in tick.fields.get("holds", ()))
    found = verdict_on(*raw, seconds=seconds, holds=holds)
    # Threads that all rest are idle to a recorder, which names that a verdict of its own.
    assert found["name"].replace("idle", "healthy") == verdict, found

    sentence = summary.sentence(GilReport.decode(read_json(json_path)))
    assert sentence.startswith(sentences)
    assert sentence in " ".join(result.stderr.split())

    described = " ".join(" ".join(ElementTree.parse(svg).getroot().itertext()).split())
    shown = {name for name, words in CAPTIONS.items() if words in f"{described} "}
    assert shown == {verdict} & CAPTIONS.keys()
