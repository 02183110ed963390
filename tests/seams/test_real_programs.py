"""Headway in programs that care for their threads, signals, forks and children: each ends as plain
Python ends it, with the same exit status, and says and leaves the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from launch import GIL_ENABLED
from parts import TREE_LIMIT_S, Scene
from process_tree import Watched, descendants
from program_table import (
    OCCASIONAL,
    PLAIN,
    PROFILE,
    PROGRAM_TABLE,
    VARYING,
    WAYS,
    End,
    Program,
    Way,
)
from recipe_tool import need
from table import recorder as start_recorder
from table import url_of_recorder, wait_until

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="without a GIL there is nothing to do")


@dataclass(frozen=True)
class Life:
    """The end of a program. Lines are in no order, since several processes write them; `files` are
    those that it has left in its folder."""

    status: int
    # How many of its processes SIGKILL has ended, which the test has not sent.
    killed: int
    lines: set[str]
    # Those of the report of `headway run`, and of processes that have ended after it.
    lines_after_report: set[str]
    files: set[str]


# Begins what `headway run --profile` says at its end.
REPORT = "headway: profile of "
PlainLife = Callable[[Program, End], Life]


def cases() -> list[object]:
    return [
        pytest.param(
            program,
            end,
            way,
            id=f"{program.name}, {end.name}, {way.name}",
            marks=[pytest.mark.slow(program.slow)] if program.slow else [],
        )
        for program in PROGRAM_TABLE
        for end in program.ends
        for way in WAYS
    ]


@dataclass(frozen=True)
class Recorder:
    socket: str
    url: str

    def received(self) -> int:
        """How many datagrams."""
        with urlopen(f"{self.url}/api/v1/now") as answer:
            return int(json.load(answer)["recorder"]["received"])


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """A recorder that outlives the programs."""
    scene = Scene(tmp_path_factory.mktemp("recorder"))
    try:
        yield Recorder(start_recorder(scene).removeprefix("unix:"), url_of_recorder(scene))
        scene.main.process.terminate()
        assert scene.main.wait() == 0, scene.main.stderr
    finally:
        scene.close()


@pytest.fixture(scope="module")
def plain_life(tmp_path_factory: pytest.TempPathFactory) -> PlainLife:
    """Each program without Headway, once."""
    lives: dict[tuple[str, str], Life] = {}

    def live(program: Program, end: End) -> Life:
        name = program.name, end.name
        if name not in lives:
            lives[name] = life(program, end, PLAIN, "", tmp_path_factory.mktemp("plain"))
        return lives[name]

    return live


def life(program: Program, end: End, way: Way, recorder: str, folder: Path) -> Life:
    scene = Scene(folder)
    others = descendants("self")
    try:
        part = program.start(scene, way, recorder)
        end.act(scene)
        # Those that have lost their parent are this process's children.
        with Watched(descendants("self", without=others)) as processes:
            end.end(scene)
            status = part.wait()
            left = processes.wait(TREE_LIMIT_S)
            assert not left, ([processes.commands[pid] for pid in left], part.stderr)
            killed = [pid for pid in processes.killed() if pid not in scene.victims]
    finally:
        scene.close()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    said, report, after = part.stderr.rstrip("\0").replace(str(folder), "").partition(REPORT)
    if way.options:
        assert report, said
        files.remove(PROFILE)
    return Life(status, len(killed), lines_of(said), lines_of(after), files - scene.given)


def lines_of(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if not OCCASIONAL.search(line)]
    return {VARYING.sub("…", line).rstrip() for line in lines}


@pytest.mark.parametrize(("program", "end", "way"), cases())
def test_it_lives_and_ends_as_without_headway(
    program: Program, end: End, way: Way, recorder: Recorder, plain_life: PlainLife, tmp_path: Path
) -> None:
    if program.packages:
        need(program.packages)
    plain = plain_life(program, end)
    received = recorder.received()
    measured = life(program, end, way, recorder.socket, tmp_path)
    if way.value.endswith("RECORDER"):
        wait_until(lambda: recorder.received() > received)
    assert measured.status == plain.status, measured.lines
    assert measured.killed == plain.killed or program.kills, measured.lines
    assert measured.lines | measured.lines_after_report & plain.lines == plain.lines
    assert measured.files == plain.files
