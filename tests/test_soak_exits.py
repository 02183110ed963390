"""A cut of scripts/soak_exits.py, its programs, and the faults that it must find."""

from __future__ import annotations

import builtins
import itertools
import re
import signal
import subprocess
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import Result, environment, python

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SOAK = SCRIPTS / "soak_exits.py"
sys.path.insert(0, str(SCRIPTS))
try:
    from soak_exits import Trial, examine, fisher, rates
    from soak_exits_programs import NAMES, draw, source
    from soak_exits_runs import PLAIN, SLOW, Outcome
finally:
    sys.path.remove(str(SCRIPTS))

SEEDS = range(600)
# The first program that only has threads that sleep, and returns.
SIMPLE = next(
    str(seed)
    for seed in itertools.count()
    if [part.__name__ for part in draw(seed)] == ["sleeping_daemons", "returns"]
)


@pytest.mark.timeout(400)
@pytest.mark.free_threading
@pytest.mark.slow("a soak")
def test_random_programs_end_as_without_headway() -> None:
    result = python(SOAK, "--exits", "60", "--first-seed", "7946", timeout=350)
    assert result.returncode == 0, result.stdout + result.stderr
    (exits, *_, faults, _, _, _) = figures(result)
    assert (exits, faults) == (60, 0)


def figures(result: Result) -> list[int]:
    """The last row of the table."""
    rows = re.findall(r"^all +([\d, ]+)$", result.stdout, re.M)
    assert len(rows) == 1, result.stdout + result.stderr
    return [int(figure.replace(",", "")) for figure in rows[0].split()]


def soak_with(planted: str, folder: Path, *options: str) -> Result:
    """A soak of a program in which, under Headway, this code runs first."""
    # The soak asks with an empty program what can be run at all.
    only = "if 'HEADWAY' in os.environ and os.path.getsize(sys.orig_argv[-1]):"
    (folder / "sitecustomize.py").write_text(
        f"import atexit, os, sys, time\n{only}\n    {planted}\n"
    )
    return python(
        *(SOAK, "--seed", SIMPLE, "--with", "interval", *options),
        env=environment(PYTHONPATH=str(folder)),
        timeout=100,
    )


@pytest.mark.slow("runs programs under a soak")
def test_an_end_that_only_headway_has_is_a_fault_with_its_command(tmp_path: Path) -> None:
    planted = "atexit.register(os._exit, 77)"
    result = soak_with(planted, tmp_path, "--exits", "2", "--reruns", "5")
    assert result.returncode == 1, result.stdout + result.stderr
    (exits, _, differ, faults, _, _, _) = figures(result)
    assert exits == differ == faults == 2


@pytest.mark.slow("a soak")
@pytest.mark.slow("runs programs under a soak")
def test_processes_that_only_headway_leaves_are_a_fault_and_ended(tmp_path: Path) -> None:
    planted = "os.fork() or (os.setsid(), time.sleep(1000))"
    result = soak_with(planted, tmp_path, "--exits", "1", "--limit", "5", "--reruns", "2")
    assert result.returncode == 1, result.stdout + result.stderr
    assert ", and leaves processes" in result.stdout
    assert figures(result)[-2:] == [1, 0]


@pytest.mark.slow("a soak")
def test_a_program_that_hangs_under_headway_alone_is_a_fault(tmp_path: Path) -> None:
    planted = "time.sleep(1000)"
    result = soak_with(planted, tmp_path, "--exits", "1", "--limit", "5", "--reruns", "2")
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search("^fault: .*: hangs$", result.stdout, re.M), result.stdout
    assert "python:S:" in result.stdout


def judge(*outcomes: tuple[str, str], reruns: int) -> Trial:
    """The examination of a program whose runs under Headway, and without it, end so in turn."""
    trial = Trial(1, "3.13.0", "priority")
    ends = {"priority": [each for each, _ in outcomes], PLAIN: [each for _, each in outcomes]}
    ends[SLOW] = ends[PLAIN][1:]
    examination = examine(trial, reruns)
    condition = next(examination)
    try:
        while True:
            condition = examination.send(Outcome(ends[condition].pop(0), "", ""))
    except StopIteration:
        return trial


def test_an_outcome_that_plain_python_has_too_is_no_fault() -> None:
    trial = judge(("SIGSEGV", "exit 0"), ("", "exit 0"), ("", "SIGSEGV"), reruns=100)
    assert trial.verdict == ""
    assert trial.plain_again.total() <= 2


def test_reruns_end_when_chance_cannot_explain_them() -> None:
    trial = judge(*[("SIGSEGV", "exit 0")] * 100, reruns=100)
    assert trial.verdict == "fault"
    assert trial.again.total() < 10


def test_a_program_that_cpython_alone_cannot_end_shows_nothing() -> None:
    ends = [*[("hangs", "crash")] * 10, ("hangs", "exit 0")]
    assert judge(*ends * 10, reruns=100).verdict == ""
    fails_now_and_then = [("hangs", "crash"), *[("hangs", "exit 0")] * 20]
    assert judge(*fails_now_and_then * 5, reruns=100).verdict == "fault"


def test_an_outcome_that_comes_again_in_one_way_only_is_a_fault() -> None:
    ends = [("SIGSEGV", "exit 0"), *[("exit 0", "exit 0")] * 8, ("SIGSEGV", "exit 0")]
    assert judge(*ends, reruns=9).verdict == "fault"
    assert judge(*ends[:-1], reruns=8).verdict == "once"


def test_chances() -> None:
    assert fisher(0, 10, 0, 10) == 1
    assert fisher(3, 3, 0, 3) == pytest.approx(1 / 20)
    # R: fisher.test(matrix(c(7, 93, 1, 99), 2), alternative = "greater")
    assert fisher(7, 100, 1, 100) == pytest.approx(0.03248, rel=0.01)


def test_a_rate_that_no_single_program_shows_is_found() -> None:
    def trials(crashes: int) -> Iterator[Trial]:
        for number in range(400):
            end = "SIGSEGV" if number < crashes else "exit 0"
            yield Trial(number, "3.13.0", "priority", end, "exit 0; said")

    found = [(rate.group, rate.status) for rate in rates(trials(40))]
    assert ("3.13.0", "SIGSEGV") in found
    assert ("priority", "SIGSEGV") in found
    assert not list(rates(trials(1)))


@pytest.mark.slow("draws 600 programs")
def test_every_part_is_drawn_and_no_program_lacks_a_name() -> None:
    drawn = set()
    for seed in SEEDS:
        drawn |= {part.__name__ for part in draw(seed)}
        text = source(seed)
        assert text == source(seed)
        top = symtable.symtable(text, "program", "exec")
        assert not unknown(top, set(top.get_identifiers()) | set(dir(builtins))), text
    assert drawn == set(NAMES)


def unknown(table: symtable.SymbolTable, known: set[str]) -> set[str]:
    found = {each.get_name() for each in table.get_symbols() if each.is_global()} - known
    # Annotations are not evaluated.
    found -= {"Callable", "Any", "__conditional_annotations__"}
    return found.union(*(unknown(child, known) for child in table.get_children()))


@pytest.mark.slow("runs programs under a soak")
def test_results_are_a_file_from_which_a_later_run_goes_on(tmp_path: Path) -> None:
    results = tmp_path / "results"
    run = (SOAK, "--with", "interval", "--first-seed", "9", "--part", "returns")
    for exits in (1, 2):
        result = python(*run, "--exits", "1", "--results", results)
        assert result.returncode in (0, 1), result.stderr
        assert figures(result)[0] == exits
    results.write_text("{}\n")
    refused = python(SOAK, "--results", results)
    assert (refused.returncode, refused.stderr) == (
        2,
        f"soak_exits: {results}: found no result in line 1\n",
    )


@pytest.mark.slow("runs programs under a soak")
def test_ctrl_c_ends_it_with_the_table_so_far() -> None:
    with subprocess.Popen(
        [sys.executable, str(SOAK), "--minutes", "5", "--with", "interval"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        try:
            assert process.stderr.readline().startswith("soak_exits: --first-seed ")
            process.send_signal(signal.SIGINT)
            table, said = process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.endswith("soak_exits: interrupted\n")
    assert "\nall " in table
