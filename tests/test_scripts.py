"""The scripts behind `make`: which interpreter they choose, and what they say where one is missing.

Machines are made of a folder for PATH and one for HOME. Stand-ins for interpreters are shell
scripts that answer as scripts/check_python.py would.
"""

import importlib.util
import os
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


def test_another_version_does_not_count(machine: Machine) -> None:
    check = [sys.executable, "-I", ROOT / "scripts" / "check_python.py"]
    done = subprocess.run([*check, "3.9"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "not 3.9" in done.stdout


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


def test_an_interpreter_without_headers_is_named(machine: Machine) -> None:
    reason = "its headers are missing from /x: install python3.13-dev"
    python = machine.add_program(machine.bin / "python3.13", f"echo '{reason}'; exit 1")
    assert_one_line(machine.run("find-python"), 1, str(python), reason)


def test_an_interpreter_without_headers_is_passed_over(machine: Machine) -> None:
    machine.add_program(machine.bin / "python3.13", "echo 'its headers are missing'; exit 1")
    python = machine.add_python(machine.bin / "python3.11", "3.11")
    assert machine.run("find-python").stdout == f"{python}\n"


def test_an_interpreter_that_is_not_there(machine: Machine) -> None:
    assert_one_line(machine.run("find-python", "/nowhere/python"), 1, "/nowhere/python")
    assert_one_line(machine.run("find-python", "jython"), 1, "jython")
    assert_one_line(machine.run("find-python", "3.11"), 1, "3.11")


def test_an_interpreter_that_does_not_start(machine: Machine) -> None:
    broken = machine.add_program(machine.bin / "python3.13", "exit 1")
    assert_one_line(machine.run("find-python", str(broken)), 1, "does not start")


def test_build_without_cargo(machine: Machine, tmp_path: Path) -> None:
    machine.add_python(machine.bin / "python3.13", "3.13")
    venv = tmp_path / "venv"
    assert_one_line(machine.run("build", str(venv)), 1, "cargo is missing", "rustup")
    assert not venv.exists()


def test_build_with_an_old_rust(machine: Machine, tmp_path: Path) -> None:
    machine.add_python(machine.bin / "python3.13", "3.13")
    machine.add_program(machine.bin / "cargo", "exit 1")
    machine.add_program(machine.bin / "rustc", "echo 'rustc 1.63.0 (4b91a6ea7 2022-08-08)'")
    assert_one_line(machine.run("build", str(tmp_path / "venv")), 1, "1.63.0", "1.85")


def test_build_without_a_compiler(machine: Machine, tmp_path: Path) -> None:
    machine.add_python(machine.bin / "python3.13", "3.13")
    machine.add_program(machine.bin / "cargo", "exit 1")
    machine.add_program(machine.bin / "rustc", "echo 'rustc 1.95.0 (59807616e 2026-04-14)'")
    assert_one_line(machine.run("build", str(tmp_path / "venv")), 1, "cc", "build-essential")


@pytest.mark.parametrize(
    ("version", "code"),
    [("3.10", 1), ("3.12", 1), ("2.7", 2), ("x", 2), ("3.14t", 2), ("3.13-x", 2)],
)
def test_versions_that_cannot_be_brought(machine: Machine, version: str, code: int) -> None:
    assert_one_line(machine.run("get-pythons", version), code, version)
    assert os.listdir(machine.home) == []


@pytest.mark.skipif(
    not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists()
    or not (ROOT / ".venvs/tools/requirements-pythons.txt").exists(),
    reason="scripts/get-pythons needs Debian's keys, and its tools from PyPI",
)
def test_a_source_package_that_the_mirror_lists_and_does_not_have(machine: Machine) -> None:
    for tool in ("awk", "basename", "cmp", "flock", "mkdir", "mktemp", "rm"):
        (machine.bin / tool).symlink_to(str(shutil.which(tool)))
    machine.add_program(machine.bin / "dpkg", "exit 1")
    machine.add_program(machine.bin / "dpkg-query", "echo install ok installed")
    machine.add_program(
        machine.bin / "apt-get",
        """case "$*" in
            indextargets*) echo http://mirror.example/debian/ ;;
            *" source "*)
                echo 'E: Failed to fetch http://mirror.example/python3.15.dsc  404  Not Found' >&2
                echo 'E: Failed to fetch some archives.' >&2
                exit 100 ;;
        esac""",
    )
    done = machine.run("get-pythons", "3.15t")
    assert (done.returncode, done.stderr) == (
        1,
        "get-pythons: 3.15t: Debian sid's source package python3.15 cannot be had: "
        "E: Failed to fetch http://mirror.example/python3.15.dsc  404  Not Found\n",
    )


def test_a_part_that_the_test_of_aarch64_does_not_have(machine: Machine) -> None:
    assert_one_line(machine.run("test-aarch64", "x"), 2, "'x'", "rust", "python")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seconds", "soon"], "--seconds is 'soon'; it must be a whole number above 0"),
        (["--seconds", "0"], "--seconds is '0'; it must be a whole number above 0"),
        (["--minutes", "1"], "there is no option --minutes (--help tells more)"),
        (
            ["http"],
            "there is no target http; there are: body connection forwarding response telemetry",
        ),
    ],
)
def test_fuzz_says_what_it_does_not_understand(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        ["sh", ROOT / "scripts" / "fuzz", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, f"fuzz: {said}\n")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [((), "''"), (("quick",), "'quick'"), (("fast", "slow"), "'slow' after 'fast'")],
)
def test_a_tier_that_there_is_not(machine: Machine, arguments: tuple[str, ...], found: str) -> None:
    done = machine.run("test", *arguments)
    assert_one_line(done, 2, f"found {found}, where one of fast, slow and all is allowed")


def test_packages_of_debian_are_not_looked_for_elsewhere(machine: Machine) -> None:
    for tool in ("date", "mktemp", "rm"):
        (machine.bin / tool).symlink_to(str(shutil.which(tool)))
    done = machine.run("debian-packages")
    assert done.returncode == 0
    assert done.stdout.startswith("debian-packages: this is not Debian: ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ("0", "without chromium apache2-bin apache2-dev build-essential gdb: E: no network"),
        ("1000", "as root: apt-get install --no-install-recommends chromium apache2-bin"),
    ],
)
def test_packages_that_cannot_be_had_are_named_and_nothing_fails(
    machine: Machine, user: str, says: str
) -> None:
    for tool in ("date", "mktemp", "rm", "tail", "timeout", "env", "mkdir", "mv"):
        (machine.bin / tool).symlink_to(str(shutil.which(tool)))
    (machine.bin / "id").unlink()
    machine.add_program(machine.bin / "id", f"echo {user}")
    machine.add_program(machine.bin / "dpkg-query", "exit 1")
    machine.add_program(machine.bin / "apt-get", "echo 'E: no network' >&2; exit 100")
    for name in ("prometheus", "promtool"):
        machine.add_program(machine.bin / name, "exit 0")
    done = machine.run("debian-packages")
    assert done.returncode == 0
    assert says in done.stdout


@pytest.mark.parametrize("name", ["cp313", "cp39-x86_64", "cp312t-aarch64", "cp313-arm64", "wheel"])
def test_a_wheel_that_there_is_not_is_refused(name: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/wheels.py", "cp313-x86_64,sdist", name],
        capture_output=True,
        text=True,
        timeout=60,
    )
    allowed = "cp310, cp311, cp312, cp313, cp313t, cp314, cp314t, cp315, cp315t"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"wheels: found '{name}'; allowed: sdist, or one of {allowed} with -x86_64 or -aarch64\n"
    )


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
