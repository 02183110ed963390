"""`headway attach` and `headway detach`, on programs that run already and know nothing of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from launch import GIL_ENABLED, TIMEOUT_S, Result, environment, headway, read_json, start
from process_tree import children

from headway.attach import target

# Tests with a gdb of their own, for the fixture.
OWN_GDB = (
    "test_a_gdb_that_aborts_leaves_nothing_where_the_user_is",
    "test_a_gdb_that_cannot_call_functions_is_not_let_into_the_program",
)
HERE = Path(__file__).resolve().parent
BY_GDB = sys.version_info < (3, 14)


def may_not_trace() -> bool:
    """Whether this system lets nobody but root look into a process that is not its child."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except OSError:
        scope = 0
    return scope > 0 and os.geteuid() != 0


pytestmark = [
    pytest.mark.serial,
    pytest.mark.slow("attaches a debugger to programs"),
    pytest.mark.skipif(may_not_trace(), reason="kernel.yama.ptrace_scope forbids it"),
    pytest.mark.skipif(BY_GDB and not shutil.which("gdb"), reason="there is no gdb"),
    pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL"),
    pytest.mark.usefixtures("working_gdb"),
]


class Running:
    """A running program; `seen` asks it what it sees of itself."""

    def __init__(self, kind: str, **variables: str) -> None:
        # Without site-packages, and so without Headway, unless it is to have its own.
        options = [] if variables else ["-S"]
        self.process = subprocess.Popen(
            [sys.executable, *options, str(HERE / "running.py"), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**variables),
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def seen(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("seen\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def snapshot(self) -> dict[str, Any]:
        """The counters of Headway in the program itself."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("snapshot\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def woken_in_s(self, seconds: float) -> int:
        before = self.seen()["woken"]
        time.sleep(seconds)
        return int(self.seen()["woken"]) - int(before)

    def wait_until_cured(self, plain: int) -> None:
        """Until its short work comes more often than before; other programs may have the cores."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self.woken_in_s(1)) <= 3 * plain:
            assert time.monotonic() < deadline, (plain, found)


@contextmanager
def running(kind: str = "convoy", **variables: str) -> Iterator[Running]:
    program = Running(kind, **variables)
    try:
        time.sleep(0.2)
        yield program
        assert program.process.poll() is None, program.process.stderr
    finally:
        if kind == "children":
            # It ends them at the end of its stdin.
            _, stderr = program.process.communicate()
        else:
            program.process.kill()
            _, stderr = program.process.communicate()
    assert stderr == ""


def attach(program: Running, *options: str | Path) -> Result:
    result = headway("attach", str(program.pid), *options)
    assert result.returncode == 0, result.stderr
    return result


def is_as_before(program: Running, before: dict[str, Any]) -> None:
    """But for modules that are not used, and one library."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = program.seen()
        same = {name: found[name] == before[name] for name in before.keys() - {"woken", "headway"}}
        if all(same.values()):
            return
        # The thread of the command ends a moment after its last answer.
        assert time.monotonic() < deadline, (before, found)
        time.sleep(0.05)


def test_a_running_program_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with running() as program:
        before = program.seen()
        result = attach(program, "--for", "1.5", "--json", out)
        is_as_before(program, before)
        again = attach(program, "--for", "0.5")
        is_as_before(program, before)
    report = read_json(out)
    assert report["pid"] == program.pid
    assert 1.4 < report["wall_s"] < 3
    rows = {row["name"]: row for row in report["threads"]}
    assert rows["light"]["waited_s"] > 0.5 * report["wall_s"]
    assert rows["compute"]["held_s"] > 0.5 * report["wall_s"]
    assert report["policy"] == "interval"
    for said in (result.stdout, again.stdout):
        # On a machine that others use, the sentence begins with that.
        assert "light waited" in " ".join(said.split())
    assert re.search(r"attached to process \d+ \(CPython 3\.\d+\) in ", result.stderr)


def test_a_policy_cures_it_for_the_time_or_until_detach() -> None:
    with running() as program:
        before = program.seen()
        plain = program.woken_in_s(1)
        result = attach(program, "--for", "1", "--policy", "priority")
        assert "policy priority" in result.stdout
        is_as_before(program, before)
        attach(program, "--for", "0.5", "--policy", "priority", "--keep")
        program.wait_until_cured(plain)
        ended = headway("detach", str(program.pid))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "is as it was before --keep" in ended.stdout
        is_as_before(program, before)
        assert "has left nothing on" in headway("detach", str(program.pid)).stdout


def test_the_lines_and_the_trace_of_a_running_program(tmp_path: Path) -> None:
    profile, trace = tmp_path / "waits.txt", tmp_path / "trace.json"
    with running() as program:
        before = program.seen()
        result = attach(program, "--for", "1", "--profile", profile, "--trace", trace)
        is_as_before(program, before)
    assert "compute (running.py:" in result.stdout.replace(f"{HERE}/", "")
    assert "compute" in profile.read_text()
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"hold", "wait"} <= {each.get("name") for each in events}


def test_a_policy_of_the_programs_own_stays() -> None:
    with running(HEADWAY="priority") as program:
        before = program.seen()
        result = attach(program, "--for", "0.5", "--policy", "interval")
        assert "watched, policy priority" not in " ".join(result.stdout.split())
        assert "has left nothing on" in headway("detach", str(program.pid)).stdout
        again = " ".join(attach(program, "--for", "0.3").stdout.split())
        assert "watched, policy priority" in again
        is_as_before(program, before)


def test_one_command_at_a_time() -> None:
    with running() as program:
        before = program.seen()
        first = start("attach", str(program.pid), "--for", "3", "--policy", "priority")
        assert first.stderr is not None
        assert "measuring for" in first.stderr.readline()
        assert refusal(program.pid).startswith("another headway attach measures process")
        stdout, _ = first.communicate(timeout=TIMEOUT_S)
        assert (first.returncode, "policy priority" in stdout) == (0, True)
        is_as_before(program, before)


def test_a_program_that_ends_meanwhile() -> None:
    with running("children") as program:
        (child, _) = sorted(children(program.pid))
        started = start("attach", str(child), "--for", "2")
        assert started.stderr is not None
        assert "measuring for" in started.stderr.readline()
        os.kill(child, signal.SIGKILL)
        stdout, stderr = started.communicate(timeout=TIMEOUT_S)
    assert (started.returncode, stdout) == (1, "")
    assert f"process {child} has ended" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("kind", ["alone", "no-main"])
def test_what_the_main_thread_does_is_no_matter(kind: str) -> None:
    with running(kind) as program:
        result = attach(program, "--for", "0.5")
    assert re.search(r"headway  Python 3\.\d+\.\d+, pid \d+", result.stdout)


def test_an_idle_process() -> None:
    """gdb finds it in a wait. PEP 768 needs a thread that runs Python."""
    with running("asleep") as program:
        before = program.seen()
        result = headway("attach", str(program.pid), "--for", "0.5")
        if BY_GDB:
            assert result.returncode == 0, result.stderr
        else:
            assert result.returncode == 2
            assert "ran Python code within 5 s" in result.stderr
        is_as_before(program, before)


def test_a_program_with_its_children_in_one_report(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with running("children") as program:
        result = attach(program, "--tree", "--for", "1", "--json", out)
    processes = [read_json(out), *read_json(out)["children"]]
    # PEP 768 has no way into the parent, which waits for a line.
    assert len(processes) == (3 if BY_GDB else 2)
    assert (f"without process {program.pid}: " in result.stderr) is not BY_GDB
    working = [each for each in processes if each["pid"] != program.pid]
    assert len(working) == 2
    for each in working:
        assert {row["name"] for row in each["threads"]} >= {"light", "compute"}
    assert "light waited" in " ".join(result.stdout.split())


@pytest.mark.skipif(BY_GDB, reason="gdb finds a thread in a wait, too")
def test_a_tree_of_which_no_process_lets_it_in() -> None:
    with running("asleep") as program:
        result = headway("attach", str(program.pid), "--tree", "--for", "0.5")
        # A single process says why by itself.
        assert (result.returncode, result.stdout) == (2, "")
        child = os.fork()
        if child == 0:
            signal.pause()
        try:
            own = headway("attach", str(os.getpid()), "--tree", "--for", "0.5")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert own.returncode == 2
    assert "--tree: none of the processes could be attached to" in own.stderr


def test_what_a_policy_changes_in_turns(tmp_path: Path) -> None:
    out = tmp_path / "comparison.json"
    compare = ("--compare", "--json", out)
    with running() as program:
        before = program.seen()
        result = attach(program, *compare, "--for", "8")
        is_as_before(program, before)
        early = start("attach", str(program.pid), *map(str, compare), "--for", "60")
        assert early.stderr is not None
        assert "interval and priority in 60 turns of 1 s" in early.stderr.readline()
        time.sleep(3)
        early.send_signal(signal.SIGINT)
        stdout, stderr = early.communicate(timeout=TIMEOUT_S)
        is_as_before(program, before)
        killed = start("attach", str(program.pid), *map(str, compare), "--for", "60")
        assert killed.stderr is not None
        killed.stderr.readline()
        time.sleep(2)
        killed.kill()
        killed.communicate()
        is_as_before(program, before)
        remove_what_a_killed_command_left()
        assert "watched, switch interval" in " ".join(
            attach(program, "--for", "0.3").stdout.split()
        )
    # Where other programs have the cores, it may be that none waits less.
    assert re.search(r"^  light  .*\[.*\]", result.stdout, re.MULTILINE)
    assert re.search("(Under priority, light waited|No thread clearly waits less)", result.stdout)
    assert (early.returncode, "light" in stdout) == (0, True), stderr
    comparison = read_json(out)
    assert [turn["policy"] for turn in comparison["turns"]][:2] == ["interval", "priority"]


def test_a_program_that_ends_while_it_is_compared() -> None:
    with running("children") as program:
        (child, _) = sorted(children(program.pid))
        compare = ("--compare", "--policy", "priority", "--for", "60")
        started = start("attach", str(child), *compare)
        assert started.stderr is not None
        assert "60 turns" in started.stderr.readline()
        time.sleep(4)
        os.kill(child, signal.SIGKILL)
        stdout, stderr = started.communicate(timeout=TIMEOUT_S)
    # The whole pairs of turns are shown.
    assert started.returncode == 0, stderr
    assert f"process {child} has ended" in stderr
    assert "waited, priority" in " ".join(stdout.split()) or "light" in stdout


def test_a_tree_is_compared_kept_and_detached() -> None:
    with running("children") as program:
        tree = (str(program.pid), "--tree")
        compared = attach(program, "--tree", "--policy", "priority", "--compare", "--for", "8")
        assert re.search(r"^  light  .*\[.*\]", compared.stdout, re.MULTILINE)
        attach(program, "--tree", "--policy", "priority", "--keep", "--for", "0.3")
        ended = headway("detach", *tree)
        # The parent, which waits for a line, cannot be reached by PEP 768.
        assert ended.returncode == (0 if BY_GDB else 1), ended.stderr
        assert (f"without process {program.pid}: " in ended.stderr) is not BY_GDB
        assert ended.stdout.count("is as it was before --keep") == (3 if BY_GDB else 2)
        assert "left nothing on" in headway("detach", *tree).stdout


def test_the_report_lies_between_snapshots_of_the_program_itself(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with running(HEADWAY="interval") as program:
        outer = program.snapshot()
        started = start("attach", str(program.pid), "--for", "60", "--json", str(out))
        assert started.stderr is not None
        assert "measuring for" in started.stderr.readline()
        inner = program.snapshot()
        time.sleep(1)
        inner_end = program.snapshot()
        started.send_signal(signal.SIGINT)
        _, stderr = started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == 0, stderr
        outer_end = program.snapshot()
    found = {row["name"]: row for row in read_json(out)["threads"]}
    for name in ("light", "compute"):
        begins = [{row["name"]: row for row in each["threads"]}[name] for each in (inner, outer)]
        ends = [
            {row["name"]: row for row in each["threads"]}[name] for each in (inner_end, outer_end)
        ]
        counts = ("takes", "contended_takes", "voluntary_drops", "forced_drops")
        for figure in (*counts, "held_s", "waited_s"):
            least, most = (
                end[figure] - begin[figure] for begin, end in zip(begins, ends, strict=True)
            )
            assert least <= found[name][figure] <= most, (name, figure)


@pytest.mark.parametrize("kind", ["crowd", "forking", "calls", "inner"])
def test_programs_of_every_kind(kind: str) -> None:
    with running(kind) as program:
        before = program.seen()
        plain = program.woken_in_s(1)
        attach(program, "--for", "0.5", "--policy", "priority", "--keep")
        program.wait_until_cured(plain)
        ended = headway("detach", str(program.pid))
        assert (ended.returncode, ended.stderr) == (0, "")
        is_as_before(program, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_command_may_end_at_any_time(number: signal.Signals) -> None:
    with running() as program:
        before = program.seen()
        command = ("attach", str(program.pid), "--for", "60", "--policy", "priority")
        for wait_s in (0.3, 2.5):
            started = start(*command, start_new_session=True)
            time.sleep(wait_s)
            started.send_signal(number)
            stdout, stderr = started.communicate(timeout=TIMEOUT_S)
            if number == signal.SIGINT and "measuring for" in stderr:
                # Ctrl-C ends the measurement, with its report.
                assert started.returncode == 0, stderr
                assert "policy priority" in stdout
        is_as_before(program, before)
        attach(program, "--for", "0.3")
        is_as_before(program, before)
    if number == signal.SIGKILL:
        remove_what_a_killed_command_left()


def remove_what_a_killed_command_left() -> None:
    """From 3.14 on the script stays, because a thread may still be asked to run it."""
    for left in Path(tempfile.gettempdir()).glob("headway-attach-*"):
        assert not BY_GDB
        assert {each.name for each in left.iterdir()} <= {"script.py"} | tickets(left)
        shutil.rmtree(left)


def tickets(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if re.fullmatch("[0-9a-f]{16}", each.name)}


def refusal(pid: int, *options: str) -> str:
    result = headway("attach", str(pid), *options)
    assert (result.returncode, result.stdout) == (2, ""), result
    (line,) = result.stderr.splitlines()
    return line.removeprefix("headway attach: ")


def test_what_cannot_be_attached_to_is_refused_in_one_line(tmp_path: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    zombie = subprocess.Popen(["true"])
    try:
        while Path(f"/proc/{zombie.pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.01)
        assert refusal(zombie.pid).endswith("(a zombie, which its parent has not waited for)")
        assert refusal(sleeper.pid).startswith(
            f"process {sleeper.pid} (sleep) does not run CPython"
        )
        sleeper.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        assert "is stopped by a signal" in refusal(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()
        zombie.wait()
    assert refusal(zombie.pid) == f"there is no process {zombie.pid}"
    with running() as program:
        thread = next(
            int(each)
            for each in os.listdir(f"/proc/{program.pid}/task")
            if int(each) != program.pid
        )
        assert refusal(thread) == (f"{thread} is a thread of process {program.pid}: attach to that")
        pid = program.pid
        assert refusal(pid, "--keep") == "--keep: there is no --policy to keep"
        assert refusal(pid, "--json", str(tmp_path / "no" / "x")).startswith("--json ")
        assert refusal(pid, "--tree", "--trace", "x.json").startswith("--tree: ")
        compare = ("--compare",)
        assert refusal(pid, *compare, "--for", "5") == "--compare: --for must be 8s or more"
        assert refusal(pid, *compare, "--keep").startswith("--compare: --keep ")
        assert refusal(pid, *compare, "--profile", "x.svg").startswith("--compare: --profile ")
        same = headway("attach", str(pid), "--compare", "--policy", "interval")
        assert (same.returncode, same.stdout) == (2, "")
        assert same.stderr.endswith("has the policy interval already\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_process_of_another_user_is_refused() -> None:
    read_end, write_end = os.pipe()
    with running() as program:
        child = os.fork()
        if child == 0:
            # This interpreter's own files may be out of that user's reach.
            os.setresuid(65534, 65534, 65534)
            try:
                target.find(program.pid)
            except target.Refused as refused:
                os.write(write_end, f"{refused}".encode())
            os._exit(0)
        os.waitpid(child, 0)
    os.close(write_end)
    with open(read_end) as said:
        assert "belongs to user 0: attach as that user" in said.read()


def test_a_process_with_a_debugger_is_refused() -> None:
    seize = "import ctypes, sys; ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None)"
    with running() as program:
        debugger = subprocess.Popen(
            [sys.executable, "-c", f"{seize}; print(flush=True); input()", str(program.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert debugger.stdout is not None
            debugger.stdout.readline()
            assert refusal(program.pid) == (
                f"process {program.pid} is traced by process {debugger.pid}: a debugger is "
                "attached to it"
            )
        finally:
            debugger.communicate(b"\n")
        attach(program, "--for", "0.3")


@pytest.mark.skipif(not BY_GDB, reason="3.14 needs no gdb")
def test_a_gdb_that_cannot_call_functions_is_not_let_into_the_program(tmp_path: Path) -> None:
    """As gdb 13 on processors with AMX. The system call that it interrupts fails."""
    failing, called = tmp_path / "gdb", tmp_path / "called"
    said = "Couldn't write extended state status: Bad address."
    failing.write_text(f'#!/bin/sh\necho "$*" >>{called}\necho "{said}"\n')
    failing.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    with running() as program:
        result = headway("attach", str(program.pid), env=environment(PATH=path))
        assert result.returncode == 2
        assert result.stderr == (
            f"headway attach: this gdb cannot call a function in a process of this machine ({said}"
            f"); process {program.pid} was left alone\n"
        )
        commands = called.read_text()
        assert commands.count("--batch") == 1
        assert f"-p {program.pid}" not in commands


@pytest.mark.skipif(not BY_GDB, reason="3.14 needs no gdb")
def test_a_gdb_that_aborts_leaves_nothing_where_the_user_is(tmp_path: Path) -> None:
    commands, here = tmp_path / "bin", tmp_path / "here"
    commands.mkdir()
    here.mkdir()
    aborting = commands / "gdb"
    aborting.write_text("#!/bin/sh\nulimit -c unlimited\necho sorry\nkill -ABRT $$\n")
    aborting.chmod(0o755)
    path = f"{commands}:{os.environ['PATH']}"
    with running() as program:
        result = headway("attach", str(program.pid), cwd=here, env=environment(PATH=path))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith(f"(sorry); process {program.pid} was left alone\n")
    assert list(here.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a mount namespace")
def test_a_process_in_a_container_is_refused_with_what_to_run_inside() -> None:
    program = subprocess.Popen(
        ["unshare", "--mount", sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        assert program.stdout is not None
        if not program.stdout.readline():
            pytest.skip("this system allows no mount namespace")
        assert refusal(program.pid) == (
            f"process {program.pid} has a mount namespace of its own, as in a container: run "
            f"`headway attach {program.pid}` in there (docker exec, kubectl exec, nsenter)"
        )
    finally:
        program.kill()
        program.communicate()


@pytest.mark.skipif(BY_GDB, reason="an option of CPython 3.14")
def test_a_process_that_does_not_allow_debugging_is_refused() -> None:
    program = subprocess.Popen(
        [sys.executable, "-X", "disable-remote-debug", "-c", "while True: pass"],
        env=environment(),
    )
    try:
        time.sleep(0.3)
        assert "-X disable-remote-debug" in refusal(program.pid)
    finally:
        program.kill()
        program.wait()
