"""The scripts behind `make`: which interpreter they choose, and what they say where one is missing.

Machines are made of a folder for PATH and one for HOME. Stand-ins for interpreters are shell
scripts that answer as scripts/check_python.py would.
"""

import importlib.util
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from launch import TIMEOUT_S
from process_tree import Watched, children, descendants

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("sh", "bash", "dirname", "ls", "sort", "sed", "cat", "find", "cut", "id", "grep")


class Machine:
    """A machine that has the scripts' own tools, and the programs that a test puts on it."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.home = root / "home"
        self.home.mkdir()
        self.environment = {"PATH": str(self.bin), "HOME": str(self.home)}
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"{tool} is not on PATH"
            (self.bin / tool).symlink_to(found)

    def add_program(self, path: Path, body: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def add_python(self, path: Path, version: str) -> Path:
        """An interpreter of this version with which nothing is wrong."""
        answer = f"case $3 in any | {version}) echo $0 ;; *) echo it is {version}; exit 1 ;; esac"
        return self.add_program(path, answer)

    def run(self, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [ROOT / "scripts" / script, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def assert_one_line(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_this_interpreter_counts(machine: Machine) -> None:
    done = machine.run("find-python", sys.executable)
    assert done.returncode == 0, done.stderr
    version = subprocess.check_output([done.stdout.strip(), "-VV"], text=True).strip()
    assert version == subprocess.check_output([sys.executable, "-VV"], text=True).strip()


def test_a_free_threaded_build_is_never_chosen_unasked(machine: Machine) -> None:
    check = [sys.executable, "-I", ROOT / "scripts" / "check_python.py"]
    done = subprocess.run([*check, "any"], capture_output=True, text=True)
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert done.returncode == free_threaded
    assert ("free-threaded" in done.stdout) == free_threaded


def test_the_order_of_preference(machine: Machine) -> None:
    versions = ["3.13", "3.14", "3.12", "3.11", "3.10", "3.15"]
    pythons = [machine.add_python(machine.bin / f"python{each}", each) for each in versions]
    for python in pythons:
        assert machine.run("find-python").stdout == f"{python}\n"
        python.unlink()


def test_interpreters_off_the_path(machine: Machine) -> None:
    pyenv = machine.home / ".pyenv/versions/3.13.0/bin/python"
    brought = machine.home / ".cache/headway/pythons/3.13t/bin/python3.13t"
    machine.add_python(pyenv, "3.13")
    machine.add_python(brought, "3.13t")
    assert machine.run("find-python", "3.13").stdout == f"{pyenv}\n"
    assert machine.run("find-python", "3.13t").stdout == f"{brought}\n"


def test_no_interpreter(machine: Machine) -> None:
    assert_one_line(machine.run("find-python"), 1, "no CPython from 3.10 to 3.15", "get-pythons")


def test_an_interpreter_without_headers_is_passed_over(machine: Machine) -> None:
    machine.add_program(machine.bin / "python3.13", "echo 'its headers are missing'; exit 1")
    python = machine.add_python(machine.bin / "python3.11", "3.11")
    assert machine.run("find-python").stdout == f"{python}\n"


def test_an_interpreter_that_is_not_there(machine: Machine) -> None:
    assert_one_line(machine.run("find-python", "/nowhere/python"), 1, "/nowhere/python")
    assert_one_line(machine.run("find-python", "jython"), 1, "jython")
    assert_one_line(machine.run("find-python", "3.11"), 1, "3.11")


@pytest.mark.skipif(
    importlib.util.find_spec("test.libregrtest") is None, reason="CPython's tests are missing"
)
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_a_comparison_that_is_ended_leaves_no_process(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """Neither its recorder nor a test."""
    script = [ROOT / "scripts/compare_cpython_tests.py", "test_queue"]
    with subprocess.Popen(
        [sys.executable, *script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as comparison:
        try:
            end = time.monotonic() + TIMEOUT_S
            # A recorder, and a run of tests.
            while len(children(comparison.pid)) < 2 and time.monotonic() < end:
                time.sleep(0.05)
            started = Watched(descendants(comparison.pid))
            comparison.send_signal(number)
            said, _ = comparison.communicate(timeout=TIMEOUT_S)
        finally:
            comparison.kill()
    with started:
        left = started.wait(TIMEOUT_S)
        for pid in left:
            started.kill(pid)
    assert (comparison.returncode, left) == (status, set()), said
