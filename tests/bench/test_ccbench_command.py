"""`headway ccbench`: the old benchmark's options and its output, line by line."""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import stat
import sys
from pathlib import Path

import pytest
from launch import GIL_ENABLED, run_main, start

from headway.bench import ccbench_command
from headway.bench.ccbench_command import iterations
from headway.bench.experiment import Measured

SHORT = ("-n", "1", "--seconds", "0.2")
TITLES = r"== CPython 3\.\d+\.\d+\S* \([^)]*\) ==\n== \S+ Linux on '.*' ==\n"
THROUGHPUT = "--- Throughput ---\n\n" + "".join(
    rf"{task}\n\nthreads=1: \d+ iterations/s\.\n\n"
    for task in (
        r"Pi calculation \(Python\)",
        r"regular expression \(C\)",
        r"bz2 compression \(C\)",
    )
)
LATENCY = "--- Latency ---\n\n" + "".join(
    rf"Background CPU task: {task}\n\n"
    r"CPU threads=0: \d+ ms\. \(std dev: \d+ ms\.\)\n"
    r"CPU threads=1: \d+ ms\. \(std dev: \d+ ms\.\)\n\n"
    for task in (
        r"Pi calculation \(Python\)",
        r"regular expression \(C\)",
        r"bz2 compression \(C\)",
    )
)
BANDWIDTH = (
    "--- I/O bandwidth ---\n\n"
    r"Background CPU task: Pi calculation \(Python\)\n\n"
    r"CPU threads=0: \d+\.\d packets/s\.\n"
    r"CPU threads=1: \d+\.\d \( \d+ %\)\n\n"
)


def refused(*options: str) -> str:
    result = run_main("ccbench", *options)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    line, end, rest = result.stderr.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("headway ccbench: ")


@pytest.mark.slow("runs every benchmark of ccbench")
def test_without_a_choice_all_tests_run_in_the_old_form() -> None:
    result = run_main("ccbench", *SHORT)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert re.fullmatch(f"{TITLES}\n{THROUGHPUT}{LATENCY}{BANDWIDTH}", result.stdout)


def test_tests_are_those_that_were_asked_for() -> None:
    result = run_main("ccbench", "-b", *SHORT, "-I", "0.01")
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(f"{TITLES}\n{BANDWIDTH}", result.stdout)


@pytest.mark.parametrize(
    ("words", "interval_s"),
    [((), 0.005), (("-i", "0.001"), 0.001), (("-I", "1"), 1), (("--switch-interval", "1"), 1)],
)
def test_the_switch_interval_has_its_old_names(words: tuple[str, ...], interval_s: float) -> None:
    parser = argparse.ArgumentParser()
    ccbench_command.prepare_parser(parser)
    choice = ccbench_command.choose(parser.parse_args(words))
    assert choice.switch_intervals_s == (interval_s,)


@pytest.mark.slow("runs a benchmark")
def test_more_threads_are_told_in_percent() -> None:
    result = run_main("ccbench", "-t", "-n", "2", "--seconds", "0.05")
    assert result.returncode == 0, result.stderr
    assert len(re.findall(r"^threads=2: \d+ \( \d+ %\)$", result.stdout, re.MULTILINE)) == 3


@pytest.mark.slow("runs a benchmark")
@pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")
def test_a_policy_is_named() -> None:
    result = run_main("ccbench", "-b", *SHORT, "--policy", "priority")
    assert result.returncode == 0, result.stderr
    named = r"== Headway \S+, policy priority ==\n"
    assert re.fullmatch(f"{TITLES}{named}\n{BANDWIDTH}", result.stdout)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-i", "100"), "argument -i/--interval: found '100', a check interval in bytecodes"),
        (("-i", "soon"), "argument -i/--interval: found 'soon'; it is seconds"),
        (("-I", "100"), "argument -I/--switch-interval: found '100'; it is seconds"),
        (("-n", "0"), "argument -n/--num-threads: found '0'; it is a whole number from 1 to 64"),
        (("--seconds", "-1"), "argument --seconds: found '-1'; it is seconds"),
        (
            ("--policy", "fifo"),
            "--policy fifo: headway run: argument --policy: 'fifo' is no policy",
        ),
        (("--python", "/nonexistent"), "--python /nonexistent: is no Python that runs"),
        (("--latclient", "{}"), "unrecognized arguments: --latclient {}"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], said: str) -> None:
    assert refused(*options).startswith(said)


@pytest.mark.slow("runs a benchmark")
def test_a_line_that_cannot_be_measured_says_so(tmp_path: Path) -> None:
    dying = tmp_path / "python"
    dying.write_text(
        '#!/bin/sh\ncase "$*" in *"computation.py 1 B "*) echo "out of luck" >&2; exit 3;; esac\n'
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    dying.chmod(dying.stat().st_mode | stat.S_IXUSR)
    result = run_main("ccbench", "-t", *SHORT, "--python", dying)
    assert result.returncode == 1, result.stderr
    _, lines = result.stdout.split("regular expression (C)\n\n")
    assert lines.startswith("threads=1: computation.py under stock 5 ms ended; ")
    assert "the last that it said: out of luck\n" in lines
    assert re.search(r"bz2 compression \(C\)\n\nthreads=1: \d+ iterations/s\.\n", lines)


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [
        (signal.SIGINT, 130),
        pytest.param(
            signal.SIGTERM, 128 + signal.SIGTERM, marks=pytest.mark.slow("runs a benchmark")
        ),
    ],
)
def test_lines_are_printed_as_they_come_until_an_interruption(
    number: signal.Signals, exit_code: int
) -> None:
    process = start("ccbench", "-b", "-n", "64", "--seconds", "0.1")
    try:
        assert process.stdout is not None
        said = ""
        while not said.startswith("CPU threads=0: "):
            said = process.stdout.readline()
            assert said, "it ended by itself"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == exit_code, stderr
    assert stderr == ""
    assert "CPU threads=64" not in stdout


def test_nothing_done_alone_has_no_percentage() -> None:
    assert iterations(Measured(5.0), Measured(0.0)) == "5 ( - %)"
    assert iterations(Measured(5.0), Measured(2.0)) == "5 ( 250 %)"


def test_help_tells_what_is_different() -> None:
    result = run_main("ccbench", "--help")
    assert result.returncode == 0
    assert "headway bench latency" in result.stdout
    assert "--num-threads N" in result.stdout
