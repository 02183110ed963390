"""`headway run --trace`: what is in the file, when it is written, and what is refused."""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from launch import GIL_ENABLED, TIMEOUT_S, headway, python, report_in, run_main, start
from traces import CONTENDED, Chrome, length_s, traced

needs_gil = pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to trace")
INTERPRETERS = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


@needs_gil
@pytest.mark.parametrize("policy", ["interval", "priority"])
def test_the_trace_and_the_report_agree(tmp_path: Path, policy: str) -> None:
    trace, report, said = traced(tmp_path, CONTENDED, "--policy", policy)
    rows = {row["name"]: row for row in report["threads"]}
    for name in ("hog-0", "hog-1", 'napper "é"'):
        row, holds, waits = rows[name], trace.of(name, "hold"), trace.of(name, "wait")
        assert len(holds) == row["takes"]
        assert len(waits) == row["contended_takes"]
        forced = [hold for hold in holds if hold.told["drop"] == "forced"]
        assert len(forced) == row["forced_drops"]
        assert length_s(holds) == pytest.approx(row["held_s"], rel=1e-9)
        assert length_s(waits) == pytest.approx(row["waited_s"], rel=1e-9)
        forced_waits = trace.of(name, "forced wait")
        assert len(forced_waits) <= row["forced_drops"]
        assert length_s(forced_waits) == pytest.approx(row["forced_waited_s"], rel=1e-9)
    (gil,) = report["gils"]
    requests = [mark for mark in trace.marks if mark["name"] == "drop request"]
    assert len(requests) == gil["drop_requests"] > 0
    assert trace.pids == {report["pid"]}
    assert trace.notes["lost_events"] == 0
    assert f"headway: trace of {trace.notes['end_ns'] / 1e9:.3f} s (" in said
    assert report_in(said)


@needs_gil
def test_who_holds_holds_alone_and_after_its_wait(tmp_path: Path) -> None:
    trace, _, _ = traced(tmp_path, CONTENDED)
    tracks = trace.tracks()
    assert set(tracks) == {"GIL main", "MainThread", "hog-0", "hog-1", 'napper "é"'}
    for slices in tracks.values():
        for one, following in pairwise(slices):
            assert one.from_ns <= one.to_ns <= following.from_ns
    holds = sorted(
        (one.from_ns, one.to_ns, one.track) for one in trace.slices if one.name == "hold"
    )
    on_gil = [(one.from_ns, one.to_ns, one.name) for one in tracks.pop("GIL main")]
    assert holds == on_gil
    for slices in tracks.values():
        for one, following in pairwise(slices):
            if one.name == "wait":
                assert (following.name, following.from_ns) == ("hold", one.to_ns)
            if one.name == "forced wait":
                assert following.name in ("wait", "hold")


@needs_gil
def test_a_drop_request_is_made_while_one_waits_and_another_holds(tmp_path: Path) -> None:
    trace, _, _ = traced(tmp_path, CONTENDED)
    flows = {(flow["ph"], flow["id"]): flow for flow in trace.flows}
    requests = [mark for mark in trace.marks if mark["name"] == "drop request"]
    asked = [mark for mark in trace.marks if mark["name"] == "asked to drop"]
    assert len(requests) == len(asked) == len(trace.flows) / 2 > 0
    for number, (request, answer) in enumerate(zip(requests, asked, strict=True)):
        waiter, holder = trace.names[request["tid"]], trace.names[answer["tid"]]
        at_ns = int(request["ts"] * 1000)
        assert any(one.from_ns <= at_ns <= one.to_ns for one in trace.of(waiter, "wait"))
        assert any(one.from_ns <= at_ns <= one.to_ns for one in trace.of(holder, "hold"))
        assert request["args"] == {"holder": holder}
        assert answer["args"] == {"waiter": waiter}
        assert flows["s", number]["tid"] == request["tid"]
        assert flows["f", number]["tid"] == answer["tid"]


@needs_gil
def test_the_last_events_are_kept(tmp_path: Path) -> None:
    ends = "\nfor _ in range(1500): time.sleep(0)\n"
    trace, report, said = traced(tmp_path, CONTENDED + ends, "--trace-events", "1000")
    # Rounded up to 1,024: a take and a drop for each sleep, and none of what was before.
    assert trace.notes["lost_events"] > 3000 - 1024
    assert set(trace.tracks()) == {"GIL main", "MainThread"}
    assert 510 <= len(trace.of("MainThread", "hold")) <= 513
    assert trace.notes["begin_ns"] > 0.25e9
    assert trace.slices[0].from_ns >= trace.notes["begin_ns"]
    assert f"{trace.notes['lost_events']:,} events before that are not kept" in said
    assert report["gils"][0]["takes"] > 1500


@needs_gil
def test_threads_keep_their_names_when_they_have_ended(tmp_path: Path) -> None:
    code = """
import threading
for number in range(700):
    thread = threading.Thread(target=int, name=f"short-{number}")
    thread.start()
    thread.join()
"""
    trace, report, _ = traced(tmp_path, code)
    names = {f"short-{number}" for number in range(700)}
    assert names <= set(trace.tracks())
    assert not names <= {row["name"] for row in report["threads"]}


@needs_gil
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import time; time.sleep(0.01); 1 / 0", 1),
        ("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -2),
        ("import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", -15),
    ],
)
def test_however_the_program_ends_there_is_a_trace(tmp_path: Path, code: str, status: int) -> None:
    out = tmp_path / "trace.json"
    result = headway("run", "--trace", out, "-c", code)
    assert result.returncode == status, result.stderr
    assert Chrome(out).of("MainThread", "hold")
    assert result.stderr.count(f" in {out}, for ui.perfetto.dev\n") == 1
    assert report_in(result.stderr)
    assert list(tmp_path.iterdir()) == [out]


@needs_gil
def test_the_profile_of_a_reporter_is_not_in_the_way_of_a_trace(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    telemetry = ("--telemetry", f"unix:{tmp_path}/nobody")
    code = "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)"
    result = headway("run", "--trace", out, *telemetry, "-c", code)
    assert result.returncode == -signal.SIGTERM, result.stderr
    assert Chrome(out).of("MainThread", "hold")


@needs_gil
def test_a_signal_amid_contention_leaves_the_holds_until_then(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    code = CONTENDED.replace("+ 0.25", "+ 60")
    code = code.replace("range(20):", "range(9999):\n        if _ == 20: print('up', flush=True)")
    process = start("run", "--trace", out, "-c", code)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGTERM
    trace = Chrome(out)
    assert trace.process == "-c"
    assert {"GIL main", "hog-0", "hog-1", 'napper "é"'} <= set(trace.tracks()), stderr
    # It may have been on its way from one to another.
    holds = trace.of("GIL main")
    unfinished = [one for one in holds if one.told["drop"] == "none yet"]
    assert unfinished in ([], holds[-1:])
    assert all(one.to_ns == trace.notes["end_ns"] for one in unfinished)


@needs_gil
def test_with_a_ledger_file_the_trace_outlives_a_crash(tmp_path: Path) -> None:
    out, report = tmp_path / "trace.json", tmp_path / "report.json"
    code = CONTENDED + "\nimport os; os.kill(os.getpid(), 9)"
    result = headway("run", "--json", report, "--trace", out, "-c", code)
    assert result.returncode == -signal.SIGKILL
    assert not out.exists()
    result = run_main("report", report, "--trace", out)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(f" in {out}, for ui.perfetto.dev\n") == 1
    assert result.stdout.startswith("headway  Python ")
    trace = Chrome(out)
    assert set(trace.tracks()) == {"GIL main", "MainThread", "hog-0", "hog-1", 'napper "é"'}
    assert trace.of("hog-0", "wait")
    # The trace ends at its last slice.
    assert trace.notes["end_ns"] == max(one.to_ns for one in trace.slices)


@needs_gil
def test_without_room_in_the_ledger_file_there_is_a_trace_all_the_same(tmp_path: Path) -> None:
    ledger, report = tmp_path / "ledger", tmp_path / "report.json"
    code = f"from headway import gil; gil.install(ledger={str(ledger)!r})"
    assert python("-c", code).returncode == 0
    limit = ledger.stat().st_size + 4096
    result = headway(
        *("run", "--json", report, "--trace", tmp_path / "trace.json", "-c", "pass"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 0
    assert f"events cannot be kept in {report}.ledger: File too large" in result.stderr
    assert ": after a crash there will be no trace\n" in result.stderr
    assert Chrome(tmp_path / "trace.json").of("MainThread", "hold")
    assert set(tmp_path.iterdir()) == {ledger, report, tmp_path / "trace.json"}


@needs_gil
def test_a_forked_child_leaves_the_trace_to_its_parent(tmp_path: Path) -> None:
    code = """
import os, threading, time
pid = os.fork()
if pid == 0:
    threading.Thread(target=time.sleep, args=(0,), name="in the child").start()
    raise SystemExit
os.waitpid(pid, 0)
threading.Thread(target=time.sleep, args=(0,), name="in the parent").start()
"""
    trace, report, said = traced(tmp_path, code)
    assert len(report["children"]) == 1
    assert trace.pids == {report["pid"]}
    assert "in the parent" in trace.tracks()
    assert "in the child" not in trace.tracks()
    assert said.count("ui.perfetto.dev") == 1


@needs_gil
def test_a_followed_child_leaves_the_trace_behind_the_ledger_to_its_parent(tmp_path: Path) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True)\n"
    trace, report, _ = traced(tmp_path, child + CONTENDED, "--follow")
    assert len(report["children"]) == 1
    assert trace.of("hog-0", "hold")


@needs_gil
@pytest.mark.skipif(sys.version_info < (3, 12), reason="interpreters share the GIL before 3.12")
def test_each_gil_has_its_own_track(tmp_path: Path) -> None:
    code = f"""
import {INTERPRETERS} as interpreters, threading, time
def serve():
    interpreter = interpreters.create()
    interpreters.run_string(interpreter, "import time; time.sleep(0.01); sum(range(9999))")
    interpreters.destroy(interpreter)
thread = threading.Thread(target=serve, name="keeper")
thread.start()
thread.join()
"""
    trace, _, _ = traced(tmp_path, code)
    tracks = trace.tracks()
    assert {"GIL main", "GIL interpreter 1"} <= set(tracks)
    assert {one.name for one in tracks["GIL interpreter 1"]} == {"keeper"}
    gils = {one.told["GIL"] for one in trace.of("keeper", "hold")}
    assert gils == {"main", "interpreter 1"}
    # Its book closed with the interpreter, and so did its last hold.
    assert tracks["GIL interpreter 1"][-1].to_ns < trace.notes["end_ns"]


@needs_gil
def test_stdout_takes_the_trace_behind_what_the_program_wrote() -> None:
    result = headway("run", "--trace", "-", "-c", "print('mine')")
    mine, _, trace = result.stdout.partition("\n")
    assert mine == "mine"
    assert json.loads(trace)["traceEvents"]
    assert "holds, 0 waits) in stdout, for ui.perfetto.dev" in result.stderr


@needs_gil
@pytest.mark.parametrize("value", ["0", "-1", "many", "999", str(2**24 + 1)])
def test_a_number_of_events_that_cannot_be_is_refused(value: str) -> None:
    result = run_main("run", "--trace", "x.json", "--trace-events", value, "-c", "print('ran')")
    assert (result.returncode, result.stdout) == (2, "")
    assert f"found {value!r}; allowed: a whole number from 1000 to 16777216" in result.stderr


@needs_gil
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "none" / "trace.json"
    result = run_main("run", "--trace", out, "-c", "print('ran')")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"headway run: --trace {str(out)!r} cannot be written: No such file or directory\n"
    )
    both = tmp_path / "both"
    result = run_main("run", "--trace", both, "--json", both, "-c", "print('ran')")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--trace and --json name the same file" in result.stderr
    assert result.stderr.count("\n") == 1


@needs_gil
def test_a_run_can_be_drawn(tmp_path: Path) -> None:
    out = tmp_path / "waits.svg"
    result = headway("run", "--trace", out, "-c", CONTENDED)
    assert result.returncode == 0, result.stderr
    assert f" waits) drawn in {out}\n" in result.stderr
    texts = [each.text or "" for each in ElementTree.parse(out).iter() if each.text]
    # On a busy machine one of the hogs may have no turn in the waits that are drawn.
    assert 'napper "é"' in texts
    assert {"hog-0", "hog-1"} & set(texts)
    assert any(", switch interval 5 ms" in text for text in texts)
    assert any(re.search(r"waited .*; it (never )?held the GIL", text) for text in texts)


@pytest.mark.free_threading
@pytest.mark.skipif(GIL_ENABLED, reason="this build has a GIL")
def test_without_a_gil_there_is_nothing_to_trace(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    result = headway("run", "--trace", out, "-c", "print('ran')")
    assert (result.returncode, result.stdout) == (2, "")
    assert "without a GIL" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()


@needs_gil
def test_a_ledger_without_a_trace_says_so(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    code = f"from headway import gil; gil.install(ledger={str(ledger)!r})"
    assert headway("run", "--json", tmp_path / "report", "-c", "pass").returncode == 0
    assert python("-c", code).returncode == 0
    for file in (ledger, tmp_path / "report"):
        result = run_main("report", "--trace", tmp_path / "out", file)
        assert result.returncode == 2
        assert "has no trace" in result.stderr
        assert result.stderr.count("\n") == 1


def test_no_program_pays_for_a_trace_that_nobody_asked_for() -> None:
    code = "import sys; print('headway.trace' in sys.modules, 'dataclasses' in sys.modules)"
    assert headway("run", "-c", code).stdout == "False False\n"
