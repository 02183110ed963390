"""Programs of which it is known which line makes others wait: what a profile charges them with."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, PROGRAMS, headway, python
from metered import run_metered

pytestmark = [
    pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
    pytest.mark.serial,
]

CHARGED = PROGRAMS / "charged.py"


def charged(case: str, seconds: float = 1.0) -> dict[str, Any]:
    ran = python(CHARGED, case, seconds)
    assert ran.returncode == 0, ran.stderr
    result: dict[str, Any] = json.loads(ran.stdout)
    return result


def share_of(result: dict[str, Any], function: str) -> float:
    """The share of all waiting that is charged to lines of a function."""
    table = result["table"]
    waited = sum(line["waited_s"] for line in table["lines"] if line["function"] == function)
    return float(waited / table["waited_s"])


def source_of(line: dict[str, Any]) -> str:
    return Path(line["file"]).read_text(encoding="utf-8").splitlines()[line["line"] - 1].strip()


@pytest.mark.parametrize(
    ("case", "source"),
    [
        ("backtrack", 'BACKTRACKING.match("a" * 22 + "b")'),
        ("sort", "sorted(NUMBERS)"),
        ("power", "BASE**12"),
    ],
)
def test_a_long_call_of_c_code_is_charged_to_its_line(case: str, source: str) -> None:
    result = charged(case)
    top = result["table"]["lines"][0]
    assert (top["function"], source_of(top)) == (case, source)
    assert share_of(result, case) > 0.8
    assert top["waiters"][0]["thread"] == "waiter"


@pytest.mark.parametrize(
    ("case", "calls"),
    [
        ("generator", ["generator", "numbers", "spin"]),
        (
            "decorator",
            ["decorator", "decorated.<locals>.wrapper", "inside_a_decorator"],
        ),
        ("code_of_text", ["code_of_text", "<module>"]),
        ("anonymous", ["anonymous", "anonymous.<locals>.<lambda>"]),
    ],
)
def test_the_calls_of_a_stack_are_those_of_the_program(case: str, calls: list[str]) -> None:
    result = charged(case)
    # CPython 3.10 has no qualified names in code objects.
    names = [calls, [call.rpartition(".")[2] for call in calls]]
    found = [stack[-len(calls) :] in names for stack, _, _ in result["stacks"]]
    waited = [waited_ns for _, _, waited_ns in result["stacks"]]
    fits = sum(ns for ns, is_found in zip(waited, found, strict=True) if is_found)
    assert fits > 0.7 * sum(waited), result["stacks"]


def test_a_deep_recursion_is_cut_at_its_outermost_calls() -> None:
    result = charged("recursion")
    stacks = [stack for stack, _, _ in result["stacks"] if stack[-1:] == ["spin"]]
    assert stacks
    for stack in stacks:
        assert stack[0] == "(deeper calls not kept)"
        assert len(stack) == 129
        assert set(stack[1:-1]) == {"recurse"}


def test_code_that_is_freed_all_the_time_is_never_taken_for_other_code() -> None:
    result = charged("code_that_is_freed", 2.0)
    callers = ["<module>", "code_that_is_freed"]
    made = [stack for stack, _, _ in result["stacks"] if stack[-1].startswith("made_")]
    assert len({stack[-1] for stack in made}) > 10
    assert all(stack[-3:-1] == callers[::-1] for stack in made)
    for line in result["table"]["lines"]:
        number = line["function"].removeprefix("made_")
        if number != line["function"]:
            assert line["file"] == f"<made up {number}>"
    waited_s = result["table"]["waited_s"]
    assert waited_s == pytest.approx(result["report_waited_s"], rel=0.001)


def test_a_program_that_never_has_a_stack_twice_does_not_fill_the_memory() -> None:
    result = charged("distinct_stacks", 2.0)
    made = [stack[-1] for stack, _, _ in result["stacks"] if stack[-1].startswith("made_")]
    assert result["made"] > len(set(made)) > 10
    # The tables have 5.2 MB, and the thread that reads stacks has its own.
    assert result["grown_bytes"] < 8 << 20
    waited_s = result["report_waited_s"]
    assert result["table"]["waited_s"] == pytest.approx(waited_s, rel=0.001)


def test_two_functions_are_charged_with_their_parts_of_the_time() -> None:
    result = charged("shares", 2.0)
    taken = result["taken_s"]
    for function, other in (("thirty", "seventy"), ("seventy", "thirty")):
        expected = taken[function] / (taken[function] + taken[other])
        assert share_of(result, function) == pytest.approx(expected, abs=0.15)


def test_what_was_computed_before_a_send_is_not_charged_to_the_send() -> None:
    result = charged("parse_and_reply")
    assert share_of(result, "parse") > 2 * share_of(result, "reply")


def test_a_function_is_not_charged_while_nobody_waits() -> None:
    result = charged("busy_alone")
    alone = [waited_ns for stack, _, waited_ns in result["stacks"] if "alone" in stack]
    beside = [waited_ns for stack, _, waited_ns in result["stacks"] if "beside" in stack]
    assert sum(alone) < 0.1 * sum(beside)


@pytest.mark.parametrize("case", ["shares", "threads_that_end", "hundred_threads"])
def test_both_sides_add_up_to_what_the_report_says(case: str) -> None:
    result = charged(case)
    table = result["table"]
    waited_s = result["report_waited_s"]
    assert table["waited_s"] == pytest.approx(waited_s, rel=0.001)
    holders_s = sum(line["waited_s"] for line in table["lines"])
    sums = (holders_s, table["handoff_s"], table["not_recorded_s"])
    assert math.fsum(sums) == pytest.approx(waited_s, rel=0.001)
    assert result["charged_waits_s"] == pytest.approx(waited_s, rel=0.01)


def test_no_wait_is_counted_while_the_meter_is_removed() -> None:
    at_removal, later, at_reinstall = run_metered("""
        done = threading.Event()
        def compute():
            while not done.is_set(): sum(range(1000))
        threads = [threading.Thread(target=compute) for _ in range(4)]
        gil.install()
        profile = gil.profile()
        profile.start()
        for thread in threads: thread.start()
        time.sleep(0.1)
        gil.uninstall()
        show(profile.take().waited_ns)
        time.sleep(0.1)
        show(profile.take().waited_ns)
        gil.install()
        show(profile.take().waited_ns)
        done.set()
        for thread in threads: thread.join()
    """)
    assert 0 < at_removal == later <= at_reinstall


def test_the_side_of_waiters_has_the_line_that_waits() -> None:
    assert charged("shares")["waiters"]["waiter"] == "wait_often"


HOLD_WHILE_OTHERS_WAIT = """
import os, signal, sys, threading, time
def tick():
    while True:
        time.sleep(0.0005)
def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
threading.Thread(target=tick, name="tick", daemon=True).start()
compute(0.5)
"""


def test_the_report_names_the_line_and_the_file_has_its_stack(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(HOLD_WHILE_OTHERS_WAIT, encoding="utf-8")
    ran = headway("run", "--profile", "waits.txt", program.name, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert " in waits.txt, one stack a line" in ran.stderr.replace(f"{tmp_path}/", "")
    lines = ran.stderr.splitlines()
    heading = next(at for at, line in enumerate(lines) if line.startswith("made others wait"))
    assert lines[heading + 1].startswith("compute (program.py:")
    first = (tmp_path / "waits.txt").read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("<module> (")
    assert ";compute (" in first


@pytest.mark.parametrize(
    ("end", "status"), [("os.abort()", -6), ("os.kill(os.getpid(), signal.SIGKILL)", -9)]
)
def test_a_crash_leaves_the_profile_in_the_ledger(tmp_path: Path, end: str, status: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(HOLD_WHILE_OTHERS_WAIT + end, encoding="utf-8")
    arguments = ("--json", "run.json", "--profile", "waits.txt", "--trace", "trace.json")
    ran = headway("run", *arguments, program.name, cwd=tmp_path)
    assert ran.returncode == status
    assert not (tmp_path / "waits.txt").exists()
    shown = headway(
        "report", "run.json", "--profile", "late.txt", "--trace", "late.json", cwd=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    first = (tmp_path / "late.txt").read_text(encoding="utf-8").splitlines()[0]
    assert ";compute (" in first
    assert (tmp_path / "late.json").stat().st_size > 1000
    assert "compute (program.py:" in shown.stdout


def test_a_signal_that_ends_the_program_writes_the_profile(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    end = "os.kill(os.getpid(), signal.SIGTERM)"
    program.write_text(HOLD_WHILE_OTHERS_WAIT + end, encoding="utf-8")
    ran = headway("run", "--profile", "waits.txt", program.name, cwd=tmp_path)
    assert ran.returncode == -15
    first = (tmp_path / "waits.txt").read_text(encoding="utf-8").splitlines()[0]
    assert ";compute (" in first


NAMED = """
import os, signal, threading, time
stop = False
def compute():
    while not stop: pass
def wait():
    while not stop: time.sleep(0.001)
threads = [threading.Thread(target=compute, name="compute")]
threads += [threading.Thread(target=wait, name=name) for name in ("waiter", "before")]
[thread.start() for thread in threads]
threads[2].name = "after"
threading.current_thread().name = "chief"
end = time.monotonic() + 0.5
while time.monotonic() < end: time.sleep(0.001)
"""
ENDS = {
    "exit": "stop = True",
    "signal": "os.kill(os.getpid(), signal.SIGTERM)",
    "crash": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("end", ENDS)
def test_threads_have_their_names_however_the_program_ends(tmp_path: Path, end: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(NAMED + ENDS[end], encoding="utf-8")
    headway("run", "--json", "run.json", "--profile", "waits.json", program.name, cwd=tmp_path)
    if end == "crash":
        shown = headway(
            "report", "run.json", "--json", "run.json", "--profile", "waits.json", cwd=tmp_path
        )
        assert shown.returncode == 0, shown.stderr
    report = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    names = {"chief", "compute", "waiter", "after"}
    assert {row["name"] for row in report["threads"]} == names
    waiters = (tmp_path / "waits.json").read_text(encoding="utf-8")
    assert not re.search(r"thread [0-9]+", waiters)


@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
def test_the_waiting_of_children_is_said_to_be_missing(tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(
        "import os, threading, time\n"
        "if os.fork() == 0:\n"
        "    end = time.time() + 0.5\n"
        "    def compute():\n"
        "        while time.time() < end: pass\n"
        "    threading.Thread(target=compute, name='compute').start()\n"
        "    while time.time() < end: time.sleep(.001)\n"
        "else:\n"
        "    os.wait()\n"
    )
    ran = headway("run", "--profile", "waits.txt", program.name, cwd=tmp_path)
    last = ran.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"This profile has pid \d+ alone: [\d.]+ m?s of waiting in a child is not in it\.", last
    ), ran.stderr
    alone = headway("run", "--profile", "waits.txt", "-c", "pass", cwd=tmp_path)
    assert "is not in it" not in alone.stderr
