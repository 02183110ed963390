"""`headway simulate` as it is used: what it refuses, what it shows, and that it shows it again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from launch import headway, run_main, start

from headway_lab import results_file

# One row, of a tenth of a virtual second.
ECHO = ("echo", "--policy", "stock", "--threads", "1", "--switch-interval", "0.005")
SHORT = ("--mode", "threads", "--seconds", "0.1", "--values", "2")


def refused(*options: str) -> str:
    """The one line that it says."""
    result = run_main("simulate", *options)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    line, end, rest = result.stderr.partition("\n")
    assert (end, rest) == ("\n", "")
    return line.removeprefix("headway simulate: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("hash",), "NAME 'hash': there are latency, countdown, echo, wsgi"),
        (("echo", "--policy", "fifo"), "--policy 'fifo': there are stock, interval, ticks, "),
        (("echo", "--cores", "0"), "argument --cores: found '0'; allowed: a whole number"),
        (("echo", "--seed", "-1"), "argument --seed: found '-1'; allowed: a whole number from 0"),
        (("echo", "--shape", "2x5"), "--shape: echo has none; it has --policy, "),
        (("countdown", "--threads", "0"), "--threads 0: countdown needs a thread that counts"),
        (("latency", "--workload", "D"), "--workload 'D': there are A, B, C, sha1, zlib"),
        (("echo", "--json", "/nonexistent/file"), "--json '/nonexistent/file' cannot be written"),
        (("echo", "--timeline", "convoy.png"), "--timeline 'convoy.png': found the suffix '.png'"),
        (("--timeline", "-"), "--timeline: found 4 experiments; allowed: one of latency, "),
        (
            ("echo", "--timeline", "-", "--json", "-"),
            "--json: not allowed with --timeline, which shows one row",
        ),
        (("--calibrate", "/dev/null", "--values", "2"), "--calibrate: found --values beside it"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], said: str) -> None:
    assert refused(*options).startswith(said)


def test_the_same_options_print_the_same() -> None:
    # In two processes, whose hashes of texts differ.
    first, again = (run("simulate", *ECHO, *SHORT) for run in (headway, run_main))
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert "Simulated: 2 cores, seed 1; policies: stock" in first.stdout
    assert "doubtful" not in first.stdout


def results(tmp_path: Path, *options: str) -> dict[str, Any]:
    file = tmp_path / "simulated.json"
    result = run_main("simulate", *options, "--json", str(file))
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_each_value_has_a_seed_of_its_own(tmp_path: Path) -> None:
    options = (*ECHO, *SHORT, "--switch-interval", "0.0001")
    both = results(tmp_path, *options, "--seed", "5")["experiments"][0]["rows"]
    later = results(tmp_path, *options, "--seed", "6")["experiments"][0]["rows"]
    assert [row["values"][1] for row in both] == [row["values"][0] for row in later]


def test_a_file_says_what_was_simulated_and_can_be_shown(tmp_path: Path) -> None:
    found = results(tmp_path, *ECHO, *SHORT, "--cores", "3", "--seed", "7")
    simulated = found["metadata"]["simulated"]
    assert (simulated["seed"], simulated["machine"]["cores"]) == (7, 3)
    assert simulated["costs"]["tcp_send_ns"] > 0
    shown = run_main("bench", "--from", str(tmp_path / "simulated.json"))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("a simulated CPython; 3 cores; seed 7; policies: stock")
    assert "doubtful" not in shown.stdout


def test_it_can_be_held_against_another_file(tmp_path: Path) -> None:
    results(tmp_path, *ECHO, *SHORT)
    file = str(tmp_path / "simulated.json")
    compared = run_main("bench-compare", file, file)
    assert compared.returncode == 0, compared.stderr
    assert "a simulated CPython" in compared.stdout
    assert "without a significant difference" in compared.stdout


def test_a_drawing_is_an_svg(tmp_path: Path) -> None:
    file = tmp_path / "convoy.svg"
    result = run_main("simulate", "echo", "--timeline", str(file))
    assert result.returncode == 0, result.stderr
    # No path: it is the same wherever that is.
    assert str(tmp_path) not in result.stdout
    root = ElementTree.parse(file).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "compute-0" in file.read_text()


def test_a_trace_has_the_convoys_holds_and_waits(tmp_path: Path) -> None:
    file = tmp_path / "convoy.json"
    result = run_main("simulate", "echo", "--timeline", str(file))
    assert result.returncode == 0, result.stderr
    events = json.loads(file.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event.get("name") == "thread_name"]
    assert {"echo", "compute-0", "client"} <= set(names)
    assert {"hold", "wait", "drop request"} <= {event.get("name") for event in events}


def test_the_terminal_has_a_drawing_too_and_options_choose_the_row() -> None:
    first, again = (
        run_main("simulate", "echo", "--timeline", "-", "--threads", "2", "--policy", "beazley")
        for _ in range(2)
    )
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert "beazley" in first.stdout
    assert "compute-1" in first.stdout


def test_an_interrupt_shows_what_there_is(tmp_path: Path) -> None:
    file = tmp_path / "simulated.json"
    with start("simulate", "countdown", "--values", "10000", "--json", str(file)) as process:
        assert process.stderr is not None
        # Some rows later.
        for _ in range(20):
            assert process.stderr.readline().startswith("countdown: round 1 of 10000")
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.endswith("Interrupted: these are the results until then.\n")
    assert "== countdown" in shown
    assert results_file.read(str(file)).experiments[0].results.rows[0].values


def test_without_a_stdout_nothing_is_simulated() -> None:
    ended = headway("simulate", *ECHO, *SHORT, preexec_fn=lambda: os.close(1))
    assert ended.returncode == 2
    assert ended.stderr == "headway simulate: stdout: it is closed\n"


def test_without_a_stderr_there_is_no_progress() -> None:
    ended = headway("simulate", *ECHO, *SHORT, preexec_fn=lambda: os.close(2))
    assert ended.returncode == 0
    assert "agrees" in ended.stdout or "differs" in ended.stdout
