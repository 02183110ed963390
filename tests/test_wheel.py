"""A wheel in a fresh virtual environment: it measures, it serves, and it leaves nothing behind.

Nothing of the Headway beside these tests is used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest
from installed_wheel import LIMIT_S, ROOT, UV, Environment, find_wheel

HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
"""

pytestmark = pytest.mark.slow("makes a virtual environment, and installs into it")


@pytest.fixture(scope="module")
def wheel() -> Path:
    return find_wheel()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("wheel") / "venv")
    environment.install(wheel)
    return environment


def test_the_wheel_has_what_an_installation_needs(installed: Environment) -> None:
    files = {name.partition("/site-packages/")[2] for name in installed.files()}
    # Where HEADWAY turns Headway on, and what the recorder's site shows.
    assert {"headway_follow.pth", "headway/recorder/static/index.html"} <= files
    modules = [name for name in files if name.endswith(".so")]
    assert modules == [f"headway/_native{sysconfig.get_config_var('EXT_SUFFIX')}"]


def test_a_known_wait_is_measured(installed: Environment, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    installed.run("headway", "run", "--json", report, ROOT / "examples/known_wait.py")
    found = json.loads(report.read_text())
    waits = {thread["name"]: thread["wait"] for thread in found["threads"]}
    if HAS_GIL:
        assert waits["MainThread"]["count"] == 1
        # The main thread may begin to wait after the holder began to sleep.
        assert waits["MainThread"]["max_s"] > 0.1
    else:
        assert found["free_threading"]


def test_the_variable_turns_the_installation_on(installed: Environment, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    installed.variables["HEADWAY"] = f"report={report}"
    try:
        installed.run("python", "-c", "pass")
    finally:
        del installed.variables["HEADWAY"]
    assert json.loads(report.read_text())["command"]


def test_an_application_is_served(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(APP)
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [installed.program("headway"), "serve", "hello:app", "--bind", "127.0.0.1:0"],
            env=installed.variables,
            cwd=tmp_path,
            stdout=output,
            stderr=output,
        )
    try:
        address = listening_address(log, server)
        with urllib.request.urlopen(address, timeout=LIMIT_S) as response:
            assert response.read() == b"hello"
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 0, log.read_text()
    finally:
        server.kill()
        server.wait()


def test_the_sbom_names_what_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if ".dist-info/sboms/" in each)
        text = archive.read(name).decode()
    bom = json.loads(text)
    assert bom["bomFormat"] == "CycloneDX"
    assert {"rustls", "headway-gil", "preact", "uplot"} <= {
        component["name"] for component in bom["components"]
    }
    # Neither the folder of the build nor its time.
    assert "file:///crates/gil#" in text
    assert re.findall('path[+]file:///(?!crates/)[^"]*', text) == []
    assert not {"serialNumber", "timestamp"} & {*bom, *bom["metadata"]}


def complete(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts/complete_wheel.py"
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)


def test_a_wheel_is_completed_in_the_same_way_each_time(tmp_path: Path, wheel: Path) -> None:
    copy = tmp_path / wheel.name
    shutil.copy(wheel, copy)
    made = []
    for _ in range(2):
        done = complete(copy, sys.executable)
        assert done.returncode == 0, done.stderr
        made.append(copy.read_bytes())
    assert made[0] == made[1]


def test_the_bytecode_is_of_the_wheels_version(tmp_path: Path, wheel: Path) -> None:
    other = tmp_path / re.sub(r"-cp3\d+-cp3\d+", "-cp39-cp39", wheel.name)
    shutil.copy(wheel, other)
    done = complete(other, sys.executable)
    assert done.returncode == 1
    tag = "cp{}{}".format(*sys.version_info[:2])
    assert done.stderr == f"complete_wheel: {other.name}: {sys.executable} is {tag}\n"
    assert other.read_bytes() == wheel.read_bytes()


@pytest.fixture(params=["pip --no-compile", "uv"])
def uncompiled(request: pytest.FixtureRequest, tmp_path: Path, wheel: Path) -> Environment:
    """An environment whose installer compiles nothing."""
    environment = Environment(tmp_path / "venv")
    if request.param == "uv":
        if not UV.exists():
            pytest.skip(".venvs/tools has no uv")
        environment.uv("install", "--no-index", wheel)
    else:
        environment.pip("install", "--no-index", "--no-cache-dir", "--no-compile", wheel)
    return environment


def test_no_start_compiles_a_module(uncompiled: Environment) -> None:
    bytecode = sorted(uncompiled.folder.rglob("headway/**/*.pyc"))
    done = uncompiled.finished(
        [uncompiled.program("headway"), "run", "-c", "pass"],
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONVERBOSE="1",  # both of the interpreters say where each module is from
    )
    loaded = re.findall(r"# code object from '?(.+/headway/[^'\n]+)", done.stderr)
    assert len(loaded) > 30
    assert [path for path in loaded if not path.endswith(".pyc")] == []
    assert sorted(uncompiled.folder.rglob("headway/**/*.pyc")) == bytecode


def test_an_edited_source_counts(uncompiled: Environment) -> None:
    (source,) = uncompiled.folder.rglob("headway/errors.py")
    # The same size, and a time that says nothing.
    was = source.stat()
    source.write_text(source.read_text().replace("The exceptions", "THE exceptions"))
    os.utime(source, ns=(was.st_atime_ns, was.st_mtime_ns))
    uncompiled.variables["PYTHONDONTWRITEBYTECODE"] = "1"
    print_text = "import headway.errors; print(headway.errors.__doc__)"
    assert uncompiled.run("python", "-c", print_text) == "THE exceptions of Headway.\n"


def test_a_traceback_names_the_installed_file(uncompiled: Environment) -> None:
    (source,) = uncompiled.folder.rglob("headway/errors.py")
    name = "import headway.errors as e; print(e.reason_of.__code__.co_filename)"
    assert uncompiled.run("python", "-c", name) == f"{source}\n"


def test_uv_uninstalls_what_the_wheel_brought(uncompiled: Environment) -> None:
    if not UV.exists():
        pytest.skip(".venvs/tools has no uv")
    uncompiled.run("headway", "run", "-c", "pass")
    uncompiled.uv("uninstall", "headway")
    assert not [path for path in uncompiled.folder.rglob("*") if "headway" in path.name]


def test_the_uninstallation_leaves_nothing(tmp_path: Path, wheel: Path) -> None:
    environment = Environment(tmp_path / "venv")
    before = environment.files()
    environment.install(wheel)
    environment.run("headway", "run", "-c", "pass")
    environment.pip("uninstall", "--yes", "headway")
    # pip removes a folder site-packages that it leaves empty.
    assert environment.files() <= before
    assert not [path for path in environment.folder.rglob("*") if "headway" in path.name]


def listening_address(log: Path, server: subprocess.Popen[bytes]) -> str:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s and server.poll() is None:
        found = re.search(r"listening on (http://\S+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())
