"""The installation of Headway and its extras: each command that a message, a page or a help text
names is run as it stands, in a copy of the checkout."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from headway.extras import how_to_install

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".venvs/tools/bin"
STATIC = "python/headway/recorder/static"
# A module of each extra's packages.
MODULES = {
    "bench": "matplotlib",
    "otlp": "opentelemetry.sdk",
    "reload": "watchfiles",
    "top": "textual",
}
TIMEOUT_S = 100

if sys.version_info >= (3, 11):
    import tomllib

    PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 13) or "t" in sys.abiflags, reason="once is enough: on 3.13"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what git has, and of what it does not ignore, with the tools of the original."""
    copy = tmp_path / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        # A file may be removed and not yet committed so.
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / ".venvs").mkdir()
    (copy / ".venvs/tools").symlink_to(ROOT / ".venvs/tools")
    (copy / "target").mkdir()
    return copy


def execute(checkout: Path, *command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=checkout,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def run_hook(checkout: Path, hook: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """As a build frontend does: the backend's folder and its requirements are on the path."""
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import build_backend; "
        f"build_backend.{hook}('target')"
    )
    path = f"{TOOLS}:{changes.pop('PATH', os.environ['PATH'])}"
    return execute(checkout, str(TOOLS / "python"), "-c", code, PATH=path, **changes)


def members(checkout: Path) -> list[str]:
    (made,) = (checkout / "target").glob("*.tar.gz")
    with tarfile.open(made) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def without_node(folder: Path) -> str:
    """A PATH with all that is on the present one but Node.js."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*") if Path(place).is_dir() else ():
            link = folder / program.name
            if program.name not in ("node", "npm", "npx") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node.js")
@pytest.mark.slow("builds the dashboard")
def test_the_build_backend_builds_the_dashboard(checkout: Path) -> None:
    (checkout / "web/node_modules").symlink_to(ROOT / "web/node_modules")
    made = run_hook(checkout, "build_sdist")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "dashboard: built into" in made.stdout
    assert (checkout / STATIC / "index.html").is_file()
    # A build from the source distribution has the dashboard without Node.js.
    assert {f"{STATIC}/index.html", "scripts/build_backend.py"} <= set(members(checkout))


@pytest.mark.slow("builds a source distribution")
def test_the_build_backend_does_without_the_dashboard(checkout: Path, tmp_path: Path) -> None:
    made = run_hook(checkout, "build_sdist", PATH=without_node(tmp_path / "bin"))
    assert made.returncode == 0, made.stdout + made.stderr
    said = "dashboard: not built: Node.js 20.19 or newer (node and npm) is missing\n"
    assert said in made.stderr
    assert f"{STATIC}/index.html" not in members(checkout)
    # maturin would refuse to build from a source distribution without this folder.
    assert "data/purelib/headway_follow.pth" in members(checkout)


def test_a_dashboard_that_cannot_be_built_fails_the_build(checkout: Path) -> None:
    script = checkout / "scripts/dashboard"
    script.write_text("#!/bin/sh\necho 'dashboard: the build failed' >&2\nexit 1\n")
    made = run_hook(checkout, "build_sdist")
    assert made.returncode == 1
    assert made.stderr.endswith(
        "dashboard: the build failed\n"
        "build_backend: the dashboard could not be built; the reason is above\n"
    )
    assert not list((checkout / "target").glob("*.tar.gz"))


def commands(extra: str) -> list[str]:
    return re.findall("`(.+?)`", how_to_install(extra))


@pytest.mark.parametrize("extra", MODULES)
@pytest.mark.slow("installs packages")
def test_make_build_brings_the_packages_of_an_extra(checkout: Path, extra: str) -> None:
    make, _ = commands(extra)
    # As `make build` leaves it: without pip, and younger than every source.
    shutil.copytree(ROOT / STATIC, checkout / STATIC)
    (checkout / STATIC / "index.html").touch()
    python = sys._base_executable  # type: ignore[attr-defined]
    venv = checkout / ".venv"
    made = execute(checkout, str(TOOLS / "uv"), "venv", "--no-project", "--python", python, ".venv")
    assert made.returncode == 0, made.stderr
    (venv / "headway.stamp").write_text(f"{python}\n")
    imports = (str(venv / "bin/python"), "-c", f"import {MODULES[extra]}")
    assert execute(checkout, *imports).returncode == 1
    made = execute(checkout, "sh", "-c", make)
    assert made.returncode == 0, made.stdout + made.stderr
    assert execute(checkout, *imports).returncode == 0


def test_an_extra_that_there_is_not_is_refused(checkout: Path) -> None:
    made = execute(checkout, "scripts/build", ".venv", EXTRAS="top,tpo")
    assert made.returncode == 2
    assert made.stderr == (
        "build: EXTRAS: found 'tpo', where bench, otlp, reload, top are allowed\n"
    )
    assert not (checkout / ".venv").exists()


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node.js")
@pytest.mark.slow("compiles Headway")
def test_pip_installs_a_checkout_with_dashboard_and_extra(checkout: Path) -> None:
    """Compiles everything once, and Headway's own crates each time: a minute or more."""
    _, install = commands("top")
    (checkout / "web/node_modules").symlink_to(ROOT / "web/node_modules")
    made = execute(checkout, str(TOOLS / "python"), "-m", "venv", "venv")
    assert made.returncode == 0, made.stderr
    made = subprocess.run(
        ["sh", "-c", install],
        cwd=checkout,
        env={
            **os.environ,
            "PATH": f"{checkout}/venv/bin:{os.environ['PATH']}",
            "CARGO_TARGET_DIR": str(ROOT / "target/pip"),
        },
        capture_output=True,
        text=True,
        timeout=590,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    code = (
        "import textual, headway._native, headway.recorder.site.application as site; "
        "assert 'site-packages' in site.__file__; assert site.has_dashboard()"
    )
    found = subprocess.run(
        [checkout / "venv/bin/python", "-I", "-c", code], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr


def test_the_tested_versions_are_in_the_ranges_of_the_extras() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras.keys() == MODULES.keys()
    files = ("", "-bench", "-otlp", "-reload")
    pins: dict[str, list[Requirement]] = {}
    for file in files:
        for line in (ROOT / f"tests/requirements{file}.txt").read_text().splitlines():
            if not line.startswith("#"):
                pins.setdefault(Requirement(line).name, []).append(Requirement(line))
    for wanted in map(Requirement, itertools.chain(*extras.values())):
        assert wanted.marker is None
        for pin in pins[wanted.name]:
            (version,) = pin.specifier
            assert version.operator == "=="
            assert version.version in wanted.specifier


def test_the_classifiers_name_the_versions_that_have_wheels() -> None:
    listed = re.search(r"^VERSIONS = (\(.*?\))$", (ROOT / "scripts/wheels.py").read_text(), re.M)
    assert listed is not None
    versions = {f"3.{tag[1:]}" for tag in ast.literal_eval(listed[1]) if not tag.endswith("t")}
    prefix = "Programming Language :: Python :: 3."
    named = {each[len(prefix) - 2 :] for each in PROJECT["classifiers"] if each.startswith(prefix)}
    assert named == versions


# A text may name these commands: of the source tree itself, perhaps with an extra, or a file of
# `make wheels`.
ALLOWED = re.compile(
    r"pip install (?:\.(?!\w)|'\.\[(?:bench|otlp|reload|top|\{extra\})\]'"
    r"|(?:--no-cache-dir |')?(?:\./|/tmp/|/wheels/)(?:headway-|\*\.whl)"
    r"|\./lab\b"
    r"|(?:--no-cache-dir )?--(?:extra-)?index-url (?:file:///|https?://)\S+ '?headway"
    r"|--no-cache-dir -r requirements\.txt"
    r"|--python \{python\} mod_wsgi)"
)


def test_no_text_names_a_package_on_an_index() -> None:
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*"),
        *ROOT.glob("lab/**/*.py"),
        *ROOT.glob("lab/*.md"),
        *ROOT.glob("python/**/*.py"),
        *ROOT.glob("web/src/**/*.*"),
    ]
    named = [
        (str(path.relative_to(ROOT)), found)
        for path in texts
        if path.is_file() and path.suffix not in (".png",)
        for found in re.findall(r"pip install [^\n]*", path.read_text(errors="replace"))
        if not ALLOWED.match(found)
    ]
    assert not named
