"""`headway bench` as it is used: what it refuses, what it shows, and how it is interrupted."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import stat
import struct
import sys
import sysconfig
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from launch import run_main, start

from headway.programs import interpreters
from headway_lab.commands.bench import with_workloads
from headway_lab.experiment import Choice
from headway_lab.measured import EXPERIMENTS

runs_an_experiment = pytest.mark.slow("runs an experiment")
SHORT = ("--values", "1", "--seconds", "0.05", "--switch-interval", "0.005")
FREE_THREADING = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# The interpreter of which this environment was made. It has no Headway.
PLAIN = str(Path(sys.base_prefix) / "bin" / Path(os.path.realpath(sys.executable)).name)


def refused(*options: str) -> str:
    """The one line that it says, having measured nothing."""
    result = run_main("bench", *options)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    line, end, rest = result.stderr.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("headway bench: ")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    said = refused("countdwon")
    assert said.startswith("NAME 'countdwon': there are ")
    assert "countdown" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--threads", "many"), "argument --threads: found 'many'; allowed: a whole number"),
        (("--threads", "65"), "argument --threads: found '65'; allowed: a whole number"),
        (("--switch-interval", "0"), "argument --switch-interval: found '0'; allowed"),
        (("--switch-interval", "nan"), "argument --switch-interval: found 'nan'; allowed"),
        (("--shape", "2by5"), "argument --shape: found '2by5'; allowed: PROCESSESxTHREADS"),
        (("--shape", "2x5"), "--shape: countdown has none; it has --policy, "),
        (("--values", "0"), "argument --values: found '0'; allowed: a whole number from 1"),
        (("--seconds", "1h"), "argument --seconds: found '1h'; allowed: a number of seconds"),
        (("--json", "/nonexistent/file"), "--json '/nonexistent/file' cannot be written"),
        (("--python", "/nonexistent/python"), "--python /nonexistent/python: "),
        (("--python", "/bin/true"), "--python /bin/true: is no Python that runs"),
        (("--python", "/bin/false"), "--python /bin/false: is no Python that runs: it exits"),
        (("--python", ""), "--python : is no Python that runs"),
        (("--free-threaded", ""), "--free-threaded : is no Python that runs"),
        (("--nice",), "unrecognized arguments: --nice"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], said: str) -> None:
    assert refused("countdown", *options).startswith(said)


@pytest.mark.parametrize(
    ("names", "workload", "known"),
    [
        (["latency"], "D", "A, B, C, sha1, zlib"),
        (["wsgi"], "A", "deadline, fixed"),
        (["wsgi", "latency"], "A", "deadline, fixed"),
        ([], "D", "A, B, C, sha1, zlib, deadline, fixed"),
    ],
)
def test_a_workload_that_is_not_there_lists_those_that_are(
    names: list[str], workload: str, known: str
) -> None:
    said = refused(*names, "--workload", workload)
    assert said == f"--workload {workload!r}: there are {known}"


def test_all_experiments_at_once_are_those_that_have_the_workload() -> None:
    choice = Choice(interpreters.this(), workloads=("fixed",))
    found = with_workloads(list(EXPERIMENTS.values()), choice, False)
    assert [each.name for each in found] == ["wsgi"]


def test_a_policy_that_nobody_knows_is_refused() -> None:
    assert "found 'fifo'; allowed: one of interval, priority, deadline" in refused(
        "countdown", "--policy", "fifo"
    )


def test_another_implementation_is_refused(tmp_path: Path) -> None:
    facts = {"implementation": "pypy", "version": "3.11.9"}
    other = script(tmp_path / "pypy", f"echo {shlex.quote(json.dumps(facts))}")
    said = refused("countdown", "--python", other)
    assert said == f"--python {other}: found pypy 3.11.9; CPython from 3.10 on is needed"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("echo 3", "it says something else than was asked"),
        ("echo '{}'", "it says something else than was asked"),
        ("echo >&2; exit 1", "it exits with 1"),
        ("printf '\\033[2Jno\\n' >&2; exit 1", "\\x1b[2Jno"),
        ("printf '\\377'", "it says something else than was asked"),
    ],
)
def test_what_is_no_python_is_refused_whatever_it_says(
    tmp_path: Path, said: str, reason: str
) -> None:
    other = script(tmp_path / "python", said)
    line = refused("countdown", "--python", other)
    assert line == f"--python {other}: is no Python that runs: {reason}"


def test_an_interpreter_without_headway_has_no_policies_to_measure() -> None:
    said = refused("countdown", "--python", PLAIN, "--policy", "priority")
    assert "allowed without it: --policy stock" in said


@pytest.mark.skipif(FREE_THREADING, reason="this is a free-threaded build")
def test_a_build_with_a_gil_is_not_free_threaded() -> None:
    said = refused("countdown", "--free-threaded", sys.executable)
    assert said.endswith("there has a GIL; a free-threaded build is needed")


def test_results_are_shown_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    options = (*SHORT, "--threads", "1", "--threads", "2")
    result = run_main("bench", "countdown", "--policy", "stock", *options, "--json", file)
    assert result.returncode == 0, result.stderr
    row = "policy stock, switch interval 0.005, threads 2"
    assert re.search(rf"^countdown: round 1, \d+ s left: {row}", result.stderr, re.MULTILINE)
    assert "== countdown: " in result.stdout
    kept = json.loads(file.read_text())
    assert kept["schema"] == 1
    metadata = kept["metadata"]
    assert metadata["policies"] == ["stock"]
    assert metadata["cpus"] == len(os.sched_getaffinity(0))
    assert 0 <= metadata["steal"] <= 1
    (experiment,) = kept["experiments"]
    assert experiment["name"] == "countdown"
    assert experiment["calibration"]["decrements"] > 0
    rows = [row for row in experiment["rows"] if row["parameters"]["mode"] == "threads"]
    assert [row["parameters"]["threads"] for row in rows] == [1, 2]
    for row in rows:
        assert row["values"] == [row["median"]]
        assert row["low"] <= row["median"] <= row["high"]


def test_an_interpreter_without_headway_measures_plain_cpython() -> None:
    result = run_main("bench", "countdown", "--python", PLAIN, *SHORT, "--threads", "1")
    assert result.returncode == 0, result.stderr
    assert "policies: stock" in result.stdout


def test_a_worker_that_dies_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    dying = script(
        tmp_path / "python",
        'case "$*" in *"countdown_threads.py 2 "*) echo "out of luck" >&2; exit 3;; esac\n'
        f'exec {shlex.quote(sys.executable)} "$@"',
    )
    options = (*SHORT, "--policy", "stock", "--threads", "1", "--threads", "2")
    # An interpreter is taken by the path that was given, whatever it calls itself.
    result = run_main("bench", "countdown", "--python", dying, *options)
    assert result.returncode == 1, result.stderr
    assert "countdown_threads.py under stock 5 ms ended; the last that it said: out of luck" in (
        result.stdout
    )
    assert re.search(r"^ *5 ms +\d", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, marks=runs_an_experiment),
        pytest.param(signal.SIGHUP, 128 + signal.SIGHUP, marks=runs_an_experiment),
    ],
)
def test_what_was_measured_before_an_interruption_is_shown_and_kept(
    tmp_path: Path, number: signal.Signals, exit_code: int
) -> None:
    file = tmp_path / "results.json"
    options = ("--values", "500", "--seconds", "0.02", "--switch-interval", "0.005")
    options += ("--threads", "1", "--policy", "stock")
    process = start("bench", "countdown", *options, "--json", file)
    try:
        assert process.stderr is not None
        said = ""
        while "round 3" not in said:
            said = process.stderr.readline()
            assert said, "it ended by itself"
        process.send_signal(number)
        # Nor does an impatient user lose anything.
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == exit_code, stderr
    assert stderr.endswith("Interrupted: these are the results until then.\n")
    assert "== countdown: " in stdout
    rows = json.loads(file.read_text())["experiments"][0]["rows"]
    counts = {len(row["values"]) for row in rows if not row.get("left_out")}
    # Two rounds, or more if this process was late, and a part of the next.
    assert min(counts) >= 2
    assert max(counts) <= min(counts) + 1


def test_progress_stays_on_its_line_of_a_narrow_terminal() -> None:
    master, terminal = os.openpty()
    # struct winsize of <asm-generic/termios.h>: rows, columns, pixels.
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(master, "rb", buffering=0) as screen:
        options = (*SHORT, "--threads", "1", "--policy", "stock")
        process = start("bench", "countdown", *options, stderr=terminal)
        os.close(terminal)
        said = b""
        try:
            # The other end is gone when the process is: EIO.
            with suppress(OSError):
                while data := screen.read(4096):
                    said += data
            process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
    lines = said.decode().split("\r\x1b[K")
    assert any(line.startswith("countdown: round 1") for line in lines)
    assert max(map(len, lines)) < 40


def test_help_lists_the_experiments() -> None:
    result = run_main("bench", "--help")
    assert result.returncode == 0
    assert re.search(r"^  countdown +pure-Python work", result.stdout, re.MULTILINE)
