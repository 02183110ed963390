"""The threads of Headway in a program: no signal to the process reaches one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import HEADWAY, PROGRAMS, TIMEOUT_S, environment

ROOT = Path(__file__).resolve().parent.parent

# All that may start a thread: the start of all threads in programs, and two experiments, which run
# in processes of Headway's own.
STARTS_THREADS = {
    "crates/threads/src/internal_thread.rs",
    "crates/refcounts/src/measure.rs",
}


def test_one_function_starts_the_threads() -> None:
    """Whoever starts a thread elsewhere forgets to block signals, or to catch a panic."""
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


@pytest.mark.free_threading
@pytest.mark.parametrize("by", ["signalfd", "sigwait"])
@pytest.mark.parametrize("how", ["telemetry", "profile", "both", "priority", "install"])
def test_a_signal_that_the_program_blocks_is_its_own(how: str, by: str, tmp_path: Path) -> None:
    program = [str(PROGRAMS / "reads_signals.py"), by]
    # No recorder listens: the thread reports nevertheless.
    telemetry = f"unix:{tmp_path / 'telemetry.sock'}"
    profile = [*HEADWAY, "run", "--profile", "profile.txt"]
    command, env = {
        "telemetry": ([sys.executable, *program], {"HEADWAY": f"telemetry={telemetry}"}),
        "profile": ([*profile, *program], {}),
        "both": ([*profile, "--telemetry", telemetry, *program], {}),
        "priority": ([sys.executable, *program], {"HEADWAY": "priority"}),
        "install": ([sys.executable, *program, "install"], {}),
    }[how]
    for _ in range(3):
        assert ends_at_its_signal(command, environment(**env), tmp_path) == (0, "ended\n")
