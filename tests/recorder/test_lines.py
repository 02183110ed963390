"""The lines that make threads wait, from the profile of a real process to the recorder's API."""

from __future__ import annotations

import subprocess
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from heard import TICK, Ear
from launch import environment
from recorded import Recorded
from served import FREE_THREADING
from started_program import TIMEOUT_S
from test_depth import asking
from ticking import HEADWAY, INTERVAL, Ticking

from headway import _native
from headway.profile.model import CUT

pytestmark = pytest.mark.skipif(FREE_THREADING, reason="without a GIL nobody waits for it")

# Two threads compute for so long.
COMPUTE_S = 3


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    with Ear(tmp_path) as ear:
        yield ear


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorded]:
    recorder = Recorded(tmp_path)
    try:
        yield recorder
    finally:
        recorder.stop()


def waited(rows: list[dict[str, Any]]) -> float:
    return float(sum(row["waited"] for row in rows))


def agree(answer: dict[str, Any]) -> bool:
    """Whether the lines have what the threads waited."""
    lines_s, threads_s = waited(answer["lines"]), waited(answer["threads"])
    return lines_s > 0 and lines_s == pytest.approx(threads_s, rel=0.1)


def test_the_line_that_computes_has_what_the_threads_of_the_service_waited(
    recorder: Recorded,
) -> None:
    page = f"/compute?{COMPUTE_S}"
    with Ticking("depth:application", f"unix:{recorder.socket}", "--threads", "2") as server:
        # One of the two waits whenever both compute.
        with asking(server, page), asking(server, page):
            pass
        deadline = time.monotonic() + TIMEOUT_S
        while not agree(recorder.ask("holders?from=-120")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    # The server has sent its last tick, which the recorder may not have read yet.
    answer, graph = {}, None
    while not graph or graph["calls"][0]["waited"] != pytest.approx(waited(answer["lines"])):
        assert time.monotonic() < deadline, (answer, graph)
        answer = recorder.ask("holders?from=-120")
        graph = recorder.ask("flame_graph?from=-120")
    lines = answer["lines"]
    computing = [row for row in lines if row["function"] == "compute_for_a_while"]
    first = lines[0]
    assert first in computing
    assert first["file"].endswith("/depth.py")
    assert first["line"] > 0
    assert {row["endpoint"] for row in computing} == {"/compute"}
    assert waited(computing) > 0.5 * waited(lines)
    assert all(row["file"] or row["function"].startswith("(") for row in lines)
    assert graph["has_stacks"]
    calls = graph["calls"]
    innermost = max(calls, key=lambda call: float(call["self"]))
    path = [innermost]
    while path[-1]["caller"] is not None:
        path.append(calls[path[-1]["caller"]])
    names = [call["function"] for call in path]
    assert names[0] == "compute_for_a_while"
    # Between the endpoint and the line are the calls of the server and the application.
    assert names[-2:] == ["/compute", "all"]
    assert len(names) > 3
    assert "(deeper calls not kept)" not in names
    assert graph["endpoints"][0]["name"] == "/compute"
    one = recorder.ask("flame_graph?from=-120&endpoint=/compute")["calls"]
    assert [call["function"] for call in one[:2]] == ["all", "/compute"]
    assert one[0]["waited"] == one[1]["waited"] == pytest.approx(calls[1]["waited"])
    assert len(recorder.ask("flame_graph?from=-120&endpoint=/none")["calls"]) == 1


# Each of two threads calls one of the functions, which compute until their time is over.
COMPUTING = """
    import os, random, sys, threading, time, warnings
    from headway import gil

    def both(function, seconds=0.8):
        threads = [threading.Thread(target=function, args=[seconds]) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
"""


def run(ear: Ear, program: str, *options: str) -> None:
    """A program, until its last tick has been heard."""
    source = textwrap.dedent(COMPUTING) + textwrap.dedent(program)
    command = [*HEADWAY, "run", "--telemetry", ear.target, *INTERVAL, *options, "-c", source]
    subprocess.run(
        command, env=environment(), stderr=subprocess.DEVNULL, check=True, timeout=TIMEOUT_S
    )
    ear.catch_up()


def lines(ear: Ear, pid: int) -> tuple[Counter[str], float]:
    """The time that others waited for each function of a process, and that its threads waited."""
    names = _native.telemetry_holder_names()
    ticks = [raw for raw in ear.raw if _native.telemetry_parse(raw)[:2] == (TICK, pid)]
    records = [
        _native.telemetry_add_holders(names, raw, _native.telemetry_record(raw))[0] for raw in ticks
    ]
    record = _native.telemetry_read(_native.telemetry_merge(records))
    found: Counter[str] = Counter()
    for row in record["lines"]:
        found[row["line_function"]] += row["line_waited"]
    return found, sum(row["thread_waited"] for row in record["threads"])


def stacks(ear: Ear, pid: int) -> Counter[tuple[str, ...]]:
    """The time that others waited for each stack of a process, the outermost call first."""
    names = _native.telemetry_holder_names()
    calls: dict[str, tuple[str | None, str]] = {}
    found: Counter[tuple[str, ...]] = Counter()
    for raw in ear.raw:
        if _native.telemetry_parse(raw)[:2] == (TICK, pid):
            record = _native.telemetry_record(raw)
            record, named = _native.telemetry_add_holders(names, raw, record)
            calls.update((each[0], (each[1], each[2])) for each in named)
            for row in _native.telemetry_read(record).get("stacks", ()):
                path: list[str] = []
                call: str | None = row["stack_id"]
                while call is not None:
                    call, function = calls[call]
                    path.append(function)
                found[tuple(reversed(path))] += row["stack_waited"]
    return found


def pids(ear: Ear) -> list[int]:
    """The processes, in the order of their first ticks."""
    return list(dict.fromkeys(tick.pid for tick in ear.heard(TICK)))


def test_a_profile_that_a_program_takes_is_beside_the_one_of_the_reporter(ear: Ear) -> None:
    run(
        ear,
        """
        def before(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: pass
        def during(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: pass
        def after(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: pass

        both(before)
        with gil.profile() as profile:
            both(during)
        functions = {each.stack[-1].function for each in profile.take().holders if each.stack}
        assert "during" in functions and not {"before", "after"} & functions
        both(after)
        with gil.profile() as profile:
            both(before)
        functions = {each.stack[-1].function for each in profile.take().holders if each.stack}
        assert "before" in functions and not {"during", "after"} & functions
        """,
    )
    (pid,) = pids(ear)
    found, waited_s = lines(ear, pid)
    assert found.most_common(1)[0][0] == "before"
    assert {name for name, _ in found.most_common(3)} == {"before", "during", "after"}
    assert found.total() == pytest.approx(waited_s, rel=0.1)


def test_the_profile_of_headway_run_is_the_one_that_is_reported(ear: Ear, tmp_path: Path) -> None:
    collapsed = tmp_path / "waits.txt"
    run(
        ear,
        """
        def compute(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: pass
        both(compute)
        """,
        *("--profile", str(collapsed)),
    )
    (pid,) = pids(ear)
    found, waited_s = lines(ear, pid)
    assert found.most_common(1)[0][0] == "compute"
    assert found.total() == pytest.approx(waited_s, rel=0.1)
    assert "compute" in collapsed.read_text()


def test_a_forked_child_has_lines_of_its_own_and_no_warning(ear: Ear) -> None:
    run(
        ear,
        """
        def compute(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: pass
        def in_child(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: pass

        both(compute)
        warnings.simplefilter("error")
        child = os.fork()
        if not child:
            both(in_child)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        both(compute)
        """,
    )
    parent, child = pids(ear)
    found, waited_s = lines(ear, parent)
    assert found.most_common(1)[0][0] == "compute"
    assert "in_child" not in found
    assert found.total() == pytest.approx(waited_s, rel=0.1)
    found, waited_s = lines(ear, child)
    assert found.most_common(1)[0][0] == "in_child"
    assert "compute" not in found
    assert found.total() == pytest.approx(waited_s, rel=0.1)
    # The recorder knows no names of the parent for the child.
    (stack, of_stack_s), *_ = stacks(ear, child).most_common(1)
    assert stack[-1] == "in_child"
    assert {"Thread.run", "run"} & set(stack[:-1])
    assert of_stack_s > 0.5 * found["in_child"]


def test_tables_that_fill_up_are_cleared_and_nothing_is_lost(ear: Ear) -> None:
    """Each stack is another one, of a hundred calls: the tables have room for some hundred."""
    run(
        ear,
        """
        def left(depth): return leaf() if depth == 0 else random.choice(SIDES)(depth - 1)
        def right(depth): return leaf() if depth == 0 else random.choice(SIDES)(depth - 1)
        SIDES = left, right
        def leaf():
            for _ in range(20_000): pass
        def walk(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end: left(100)
        both(walk, 4)
        """,
    )
    (pid,) = pids(ear)
    found, waited_s = lines(ear, pid)
    assert found.most_common(1)[0][0] == "leaf"
    assert found.total() == pytest.approx(waited_s, rel=0.1)
    assert found["(not recorded)"] < 0.1 * found.total()
    of_stacks = stacks(ear, pid)
    assert of_stacks.total() <= found.total()
    # Of stacks so deep, the innermost 64 calls and the mark are kept.
    assert {len(stack) for stack in of_stacks if stack[-1] == "leaf"} == {65}
    assert all(stack[0] == CUT for stack in of_stacks if stack[-1] == "leaf")
