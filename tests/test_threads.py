"""The threads of Headway in a program: no signal to the process reaches one, none keeps a process
alive, and none runs during a fork."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import HAS_MUSL, HEADWAY, TIMEOUT_S, environment

PROGRAMS = Path(__file__).resolve().parent / "programs" / "threads"
ROOT = Path(__file__).resolve().parent.parent

# All that may start a thread.
# The second one's runs Python, as a thread of the program: it blocks signals, and cannot panic.
STARTS_THREADS = {"crates/threads/src/internal_thread.rs", "crates/native/src/attach.rs"}


def test_one_function_starts_the_threads() -> None:
    """A thread that other code starts might receive signals, and its panic is not caught."""
    start = re.compile(r"(?<!internal_)thread::(\{[^}]*)?(spawn|scope|Builder)\b|pthread_create\(")
    found = set()
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        # The tests of a file are at its end, or in a file of their own.
        source, *_ = re.split(r"#\[cfg\(test\)\]\s*mod ", path.read_text())
        code = re.sub(r"(?m)//.*$", "", source)
        if start.search(code) and not path.stem.endswith("tests"):
            found.add(str(path.relative_to(ROOT)))
    assert found == STARTS_THREADS


def ends_at_its_signal(command: list[str], env: dict[str, str], cwd: Path) -> tuple[int, str]:
    """Sends SIGTERM to the program, which blocks it. Returns its exit status and output."""
    process = subprocess.Popen(
        command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            process.send_signal(signal.SIGTERM)
            stdout, _ = process.communicate(timeout=TIMEOUT_S)
            return process.returncode, stdout
        finally:
            process.kill()


# Each starts other threads: the reporter, the reader of stacks, both, none. `telemetry` is a socket
# without a recorder: the reporter runs nevertheless.
# musl 1.2.3, without Headway too. docs/design/packages.md has more.
MUSL_HANGS = "a forked child does not end if a thread runs on beside the one that forked it"
WAYS = (
    *(pytest.param(way, marks=pytest.mark.slow("both has it")) for way in ("telemetry", "profile")),
    *("both", "priority"),
)


def command_and_variables(
    how: str, program: list[str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    telemetry = f"unix:{folder / 'telemetry.sock'}"
    profile = [*HEADWAY, "run", "--profile", "profile.txt"]
    return {
        "telemetry": ([sys.executable, *program], {"HEADWAY": f"telemetry={telemetry}"}),
        "profile": ([*profile, *program], {}),
        "both": ([*profile, "--telemetry", telemetry, *program], {}),
        "priority": ([sys.executable, *program], {"HEADWAY": "priority"}),
        "plain": ([sys.executable, *program], {}),
    }[how]


def run_to_the_end(how: str, program: str, folder: Path, *words: str) -> tuple[int, str]:
    """The exit status and the output of a program. Its forked children end with it."""
    command, variables = command_and_variables(how, [str(PROGRAMS / program), *words], folder)
    with subprocess.Popen(
        command,
        env=environment(**variables),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, _ = process.communicate(timeout=TIMEOUT_S)
            return process.returncode, stdout
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@pytest.mark.free_threading
@pytest.mark.parametrize("by", ["signalfd", "sigwait"])
@pytest.mark.parametrize("how", [*WAYS, "install"])
def test_a_signal_that_the_program_blocks_is_its_own(how: str, by: str, tmp_path: Path) -> None:
    program = [str(PROGRAMS / "reads_signals.py"), by]
    if how == "install":
        how, program = "plain", [*program, "install"]
    command, variables = command_and_variables(how, program, tmp_path)
    for _ in range(3):
        assert ends_at_its_signal(command, environment(**variables), tmp_path) == (0, "ended\n")


@pytest.mark.free_threading
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("program", ["forks_in_a_thread.py", "main_thread_exits.py"])
def test_a_process_ends_with_the_last_thread_of_the_program(
    how: str, program: str, tmp_path: Path
) -> None:
    if HAS_MUSL and program == "forks_in_a_thread.py":
        pytest.skip(MUSL_HANGS)
    assert run_to_the_end(how, program, tmp_path) == run_to_the_end("plain", program, tmp_path)


@pytest.mark.parametrize("how", ["telemetry", "profile"])
@pytest.mark.parametrize("reason", ["chroot", "limit", "descriptors"])
def test_a_process_that_cannot_open_proc_ends_with_its_last_thread(
    how: str, reason: str, tmp_path: Path
) -> None:
    if reason == "chroot" and os.geteuid() != 0:
        pytest.skip("chroot is for root")
    if HAS_MUSL and reason != "descriptors":
        pytest.skip(MUSL_HANGS)
    program = "ends_without_proc.py"
    plain = run_to_the_end("plain", program, tmp_path, reason)
    assert run_to_the_end(how, program, tmp_path, reason) == plain


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("program", ["waits_in_a_fork_hook.py", "profiles_beside_forks.py"])
def test_a_fork_waits_for_no_thread_that_waits_for_it(
    how: str, program: str, tmp_path: Path
) -> None:
    assert run_to_the_end(how, program, tmp_path) == (0, "ended\n")


@pytest.mark.parametrize("how", WAYS)
def test_a_program_that_forks_alone_is_not_warned_of_threads(how: str, tmp_path: Path) -> None:
    status, output = run_to_the_end(how, "forks_alone.py", tmp_path)
    threads = {"telemetry": ["report", "stacks"], "profile": ["stacks"], "priority": []}
    threads["both"] = threads["telemetry"]
    # Without a GIL the stacks of late event loops are read.
    names = [f"headway-{name}" for name in threads[how]]
    assert (status, output.splitlines()) == (0, ["[]", str([*names, "python"])])


@pytest.mark.parametrize("how", WAYS)
def test_a_signal_handler_may_fork_beside_computing_threads(how: str, tmp_path: Path) -> None:
    assert run_to_the_end(how, "forks_in_handlers.py", tmp_path) == (0, "ended\n")


@pytest.mark.parametrize("how", WAYS)
def test_a_fork_keeps_nothing_of_its_caller(how: str, tmp_path: Path) -> None:
    assert run_to_the_end(how, "forks_and_forgets.py", tmp_path) == (0, "[None, None]\n")
