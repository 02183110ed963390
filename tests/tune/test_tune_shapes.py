"""`headway tune serve` with servers of several shapes: processes, threads, interpreters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from configured import with_own_gil
from launch import GIL_ENABLED, execute, run_main

from headway.json_shape import find_problem
from headway.programs.process_tree import tree
from headway.tune.document import TuneDocument

# A thread serves 20 requests a second.
WAITS = """
import time

def app(environ, start_response):
    time.sleep(0.05)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
# Each process has 100 MB, and no sub-interpreter can import it.
IS_LARGE = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

found = interpreters.get_current()
if int(found[0] if isinstance(found, tuple) else found):
    raise ImportError("large works in the main interpreter only")
MEMORY = b"x" * 100_000_000
"""
BROKEN = "raise RuntimeError('no database')"
TUNE = (sys.executable, "-m", "headway", "tune")
SHORT = ("--load", "/", "--rate", "60", "--block", "0.5", "--washout", "0.2")


def serve(folder: Path, source: str, *words: str, present: Sequence[str] = ()) -> list[str]:
    """The words after `headway tune`."""
    (folder / "shaped.py").write_text(source)
    return ["serve", "shaped:app", *SHORT, *words, "--", "--app-dir", str(folder), *present]


def figures_of_winner(document: TuneDocument) -> list[dict[str, float]]:
    """The figures of each block. A block in which a process of a busy machine was late to answer
    has none."""
    return [
        each["figures"]
        for each in document["blocks"]
        if each["figures"] and each["setting"] == document["winner"]
    ]


@pytest.mark.slow("tunes two servers for some ten seconds")
def test_threads_win_where_requests_wait(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words = ["--threads", "8", "--processes", "1", "--processes", "64", "--cores", "2"]
    words += ["--goal", "p50", "--for", "120", "--json", str(file)]
    done = execute(
        [*TUNE, *serve(tmp_path, WAITS, *words, present=["--threads", "1"])], timeout=180
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert find_problem(document, TuneDocument) == ""
    one, eight = ({"processes": 1, "threads": count} for count in (1, 8))
    of_gil = {"policy": "priority", "switch_interval_s": 0.005}
    assert document["control"] == of_gil | one
    assert document["winner"] == of_gil | eight
    assert [each["setting"] for each in document["candidates"]] == [of_gil | eight]
    why = "it can use 64 cores; --cores allows 2"
    assert document["excluded"] == [{"shape": {"processes": 64, "threads": 8}, "why": why}]
    figures = {"p99_s", "p50_s", "requests_per_s", "cpu_per_request_s", "memory_bytes"}
    assert all(figures <= each.keys() for each in figures_of_winner(document))
    assert f"Excluded: processes = 64, threads = 8 ({why})." in " ".join(done.stdout.split())
    assert "priority at 5 ms (processes = 1, threads = 8): p50 0." in done.stdout
    assert done.stdout.endswith("switch-interval = 0.005\nprocesses = 1\nthreads = 8\n")


@pytest.mark.slow("starts five servers")
def test_a_candidate_that_does_not_start_or_is_too_large_is_excluded(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words = ["--threads", "4", "--processes", "1", "--processes", "2"]
    words += ["--interpreters", "1", "--interpreters", "2", "--cores", "2", "--memory", "170MB"]
    words += ["--for", "1", "--json", str(file)]
    command = serve(tmp_path, IS_LARGE + WAITS, *words, present=["--threads", "1"])
    done = execute([*TUNE, *command], timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert [each["setting"]["interpreters"] for each in document["candidates"]] == [1]
    reasons = {
        (each["shape"]["processes"], each["shape"]["interpreters"]): each["why"]
        for each in document["excluded"]
    }
    assert reasons.keys() == {(1, 2), (2, 1), (2, 2)}
    assert "--memory allows 170 MB" in reasons[2, 1]
    for shape in ((1, 2), (2, 2)):
        assert "the server does not start" in reasons[shape]
        assert "ImportError: large works in the main interpreter only" in reasons[shape]


@pytest.mark.slow("starts two servers")
def test_more_processes_than_cores_are_tried(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    core = str(min(os.sched_getaffinity(0)))
    command = serve(tmp_path, WAITS, "--processes", "2", "--for", "1", "--json", str(file))
    done = execute(["taskset", "--cpu-list", core, *TUNE, *command], timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert [each["setting"]["processes"] for each in document["candidates"]] == [2]
    assert not document.get("excluded")


@with_own_gil
@pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to have")
@pytest.mark.slow("tunes two servers for some ten seconds")
def test_interpreters_with_own_gils_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words = ["--interpreters", "2", "--threads", "8", "--cores", "2"]
    words += ["--goal", "p50", "--for", "120", "--json", str(file)]
    command = serve(tmp_path, WAITS, *words, present=["--threads", "1", "--per-interpreter-gil"])
    done = execute([*TUNE, *command], timeout=180)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert (document["control"]["interpreters"], document["winner"]["interpreters"]) == (1, 2)
    assert all(each["cpu_per_request_s"] > 0 for each in figures_of_winner(document))


@pytest.mark.parametrize("moment", ["starting a server with threads = 8", "round 1"])
@pytest.mark.slow("runs servers until a round has begun")
def test_ctrl_c_leaves_no_process(tmp_path: Path, moment: str) -> None:
    command = [*TUNE, *serve(tmp_path, WAITS, "--threads", "8")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tune:
        assert tune.stderr is not None
        assert any(moment in line for line in tune.stderr)
        started = tree(tune.pid).keys()
        tune.send_signal(signal.SIGINT)
        _, stderr = tune.communicate(timeout=60)
    assert tune.returncode == 130, stderr
    assert "Traceback" not in stderr
    # The supervisor and the worker of a server.
    assert len(started) >= 3
    assert not [pid for pid in started if tree(pid)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--threads", "0"], "argument --threads: found '0'; allowed: a whole number from 1"),
        (["--cores", "x"], "argument --cores: found 'x'; allowed: a whole number from 1"),
        (["--memory", "-1"], "argument --memory"),
        (["--memory", "1G"], "--memory: it limits what --processes, --threads, --interpreters"),
        (["--threads", "2", "--goal", "time"], "one of p99, p50, throughput, cpu, memory,"),
        (["--goal", "memory"], "one of p99, p50, throughput, cpu, and floors"),
        (["--threads", "4"], "nothing to try: the only candidate is the present setting"),
        (
            ["--processes", "3", "--cores", "2"],
            "nothing to try: processes = 3: it can use 3 cores; --cores allows 2",
        ),
    ],
)
def test_bad_words_are_refused(tmp_path: Path, words: list[str], expected: str) -> None:
    done = run_main("tune", *serve(tmp_path, WAITS, *words))
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("present", [[], ["--preload"]])
def test_a_present_server_that_does_not_start_is_an_error(
    tmp_path: Path, present: list[str]
) -> None:
    done = run_main("tune", *serve(tmp_path, BROKEN, "--threads", "2", present=present))
    assert done.returncode == 2
    assert done.stderr == (
        "headway tune: the server does not start: APP is 'shaped:app': importing shaped failed: "
        "RuntimeError: no database\n"
    )
