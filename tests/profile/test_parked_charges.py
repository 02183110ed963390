"""The profile of a free-threaded build: which stacks wait for locks, events and stopped worlds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, PROGRAMS, headway, python

pytestmark = [
    pytest.mark.skipif(GIL_ENABLED, reason="this interpreter runs with a GIL"),
    pytest.mark.serial,
    pytest.mark.free_threading,
]

LOCKED = PROGRAMS / "locked.py"
KINDS = {
    "locks and events": "parked",
    "stopped world": "suspended",
    "stopping the world": "stopping",
}


def locked(case: str) -> dict[str, Any]:
    ran = python(LOCKED, case)
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    assert result["sides"] == ["waiters"]
    for kind, counted in KINDS.items():
        # A thread that waits at the end is counted in neither; one that waits when the profile
        # begins may be in one of both.
        assert result["totals"][kind] == pytest.approx(
            result["counted"][counted], rel=1e-3, abs=2e-3
        )
    charged_ns = sum(waited_ns for _, _, waited_ns in result["stacks"])
    assert charged_ns == pytest.approx(sum(result["totals"].values()) * 1e9, rel=1e-9)
    return result


def waited_ns(result: dict[str, Any], *calls: str) -> int:
    """The charges of stacks that have these calls, in this order."""

    def has(stack: list[str]) -> bool:
        rest = iter(stack)
        return all(call in rest for call in calls)

    return sum(ns for stack, _, ns in result["stacks"] if has(stack))


def test_two_functions_that_wait_for_a_lock_are_charged_in_the_ratio_of_their_waits() -> None:
    result = locked("lock")
    thirty = waited_ns(result, "(locks and events)", "wait_for_thirty")
    seventy = waited_ns(result, "(locks and events)", "wait_for_seventy")
    assert thirty > 5 * 0.03e9
    assert seventy > 5 * 0.07e9
    lines = {line["function"]: line for line in result["table"]["lines"]}
    line = lines["wait_for_seventy"]
    source = Path(line["file"]).read_text(encoding="utf-8").splitlines()[line["line"] - 1]
    assert source.strip() == "with LOCK:"
    assert [waiter["thread"] for waiter in line["waiters"]] == ["waiter"]


def test_a_consumer_that_waits_for_work_is_charged_to_its_line() -> None:
    result = locked("events")
    assert waited_ns(result, "(locks and events)", "consume") > 0.2e9


def test_waits_for_a_stopped_world_have_a_root_of_their_own() -> None:
    result = locked("stopped_world")
    assert result["totals"]["stopped world"] > 0
    assert waited_ns(result, "(stopped world)") > 0


WAIT_FOR_A_LOCK = """
import threading, time
lock = threading.Lock()
def wait():
    with lock:
        pass
lock.acquire()
waiter = threading.Thread(target=wait, name="waiter")
waiter.start()
time.sleep(0.3)
lock.release()
waiter.join()
"""


@pytest.mark.parametrize("ending", [".svg", ".pb.gz", ".json", ".txt"])
def test_each_format_has_the_waiters_alone(tmp_path: Path, ending: str) -> None:
    program, file = tmp_path / "program.py", tmp_path / f"waits{ending}"
    program.write_text(WAIT_FOR_A_LOCK, encoding="utf-8")
    ran = headway("run", "--profile", file, program)
    assert ran.returncode == 0, ran.stderr
    assert "waited for locks and events" in ran.stderr
    assert f"of waiters) in {file}" in ran.stderr
    written = file.read_bytes()
    if ending == ".pb.gz":
        written = gzip.decompress(written)
        assert b"delay_waiters" in written
    for text in (b"(locks and events)", b"wait", b"program.py"):
        assert text in written
    for text in (b"(handoff)", b"olders of the GIL"):
        assert text not in written
    if ending == ".txt":
        lines = written.decode().splitlines()
        waiting = [line for line in lines if f"wait ({program}:" in line]
        assert sum(int(line.rpartition(" ")[2]) for line in waiting) > 0.2e9
        assert all(line.startswith("(locks and events);") for line in waiting)
