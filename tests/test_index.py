"""The index that `make wheels` leaves: pip and uv install from it, as files and by HTTP."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed_wheel import LIMIT_S, ROOT, UV, Environment, find_wheel

HASH = "sha256=([0-9a-f]{64})"

pytestmark = pytest.mark.slow("makes a virtual environment, and installs into it")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index") / "dist"
    folder.mkdir()
    shutil.copy(find_wheel(), folder)
    make_index(folder)
    return folder


def make_index(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts/index.py", folder], capture_output=True, text=True
    )


@pytest.fixture
def server(dist: Path) -> Iterator[str]:
    """The URL of the folder, served as any static web server does."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"],
        cwd=dist,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = re.search(r"\((http://\S+/)\)", process.stdout.readline())
        assert address is not None
        yield address[1]
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        process.stdout.close()


@pytest.fixture(params=["file", "http"])
def url(request: pytest.FixtureRequest, dist: Path) -> str:
    if request.param == "file":
        return f"{dist.as_uri()}/simple"
    return f"{request.getfixturevalue('server')}simple"


@pytest.fixture(params=["pip", "uv"])
def installer(request: pytest.FixtureRequest) -> str:
    if request.param == "uv" and not UV.exists():
        pytest.skip(".venvs/tools has no uv")
    return str(request.param)


def install(environment: Environment, installer: str, *arguments: str) -> None:
    if installer == "uv":
        environment.uv("install", *arguments)
    else:
        environment.pip("install", "--no-cache-dir", *arguments)


def test_an_installer_takes_the_index(tmp_path: Path, installer: str, url: str) -> None:
    environment = Environment(tmp_path / "venv")
    install(environment, installer, "--index-url", url, "headway")
    assert (
        "MainThread"
        in environment.finished([environment.program("headway"), "run", "-c", "0"]).stderr
    )


def test_an_installer_takes_it_beside_another_index(
    tmp_path: Path, installer: str, url: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.html").write_text("<!DOCTYPE html><title>Simple index</title>")
    environment = Environment(tmp_path / "venv")
    other = (tmp_path / "other").as_uri()
    install(environment, installer, "--index-url", other, "--extra-index-url", url, "headway")
    environment.run("headway", "run", "-c", "0")


def test_the_image_installs_from_it(tmp_path: Path, dist: Path) -> None:
    dockerfile = (ROOT / "examples/deploy/Dockerfile.install").read_text()
    (arguments,) = re.findall(r"^    pip (install .* headway)$", dockerfile, re.MULTILINE)
    environment = Environment(tmp_path / "venv")
    environment.pip(*arguments.replace("file:///simple", f"{dist.as_uri()}/simple").split())
    environment.run("headway", "--version")


def test_a_requirement_may_have_a_hash(
    tmp_path: Path, dist: Path, installer: str, url: str
) -> None:
    digest = (dist / "SHA256SUMS").read_text().split()[0]
    requirements = tmp_path / "requirements.txt"
    environment = Environment(tmp_path / "venv")
    options = ("--index-url", url, "--require-hashes", "-r", str(requirements))
    version = find_wheel().name.split("-")[1]
    requirements.write_text(f"headway=={version} --hash=sha256:{'0' * 64}\n")
    with pytest.raises(AssertionError, match=r"(?i)hash"):
        install(environment, installer, *options)
    requirements.write_text(f"headway=={version} --hash=sha256:{digest}\n")
    install(environment, installer, *options)


def test_a_changed_file_is_refused(tmp_path: Path, installer: str) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    shutil.copy(find_wheel(), dist)
    make_index(dist)
    (served,) = dist.glob("simple/headway/*.whl")
    # An archive may end in a comment; all else is as it was.
    served.write_bytes(served.read_bytes()[:-2] + b"\1\0!")
    environment = Environment(tmp_path / "venv")
    with pytest.raises(AssertionError, match=r"(?i)hash"):
        install(environment, installer, "--index-url", f"{dist.as_uri()}/simple", "headway")


def test_the_pages_have_the_hashes_of_what_they_link(dist: Path) -> None:
    page = (dist / "simple/headway/index.html").read_text()
    ((name, digest),) = re.findall(f'href="([^"#]+)#{HASH}"', page)
    served = dist / "simple/headway" / name
    assert digest == hashlib.sha256(served.read_bytes()).hexdigest()
    (metadata,) = re.findall(f'data-core-metadata="{HASH}"', page)
    beside = served.with_name(f"{name}.metadata")
    assert metadata == hashlib.sha256(beside.read_bytes()).hexdigest()
    assert 'data-requires-python="&gt;=3.10"' in page
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert '<a href="headway/">' in (dist / "simple/index.html").read_text()


def test_the_index_is_made_anew_and_the_same(dist: Path, tmp_path: Path) -> None:
    copy = tmp_path / "dist"
    shutil.copytree(dist, copy)
    (copy / "simple/headway/left.txt").touch()
    make_index(copy)
    assert contents(copy) == contents(dist)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def publish(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/publish.py", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def test_a_part_of_a_release_is_not_published(tmp_path: Path) -> None:
    wanted = publish(tmp_path)
    first, count = re.findall(r"lacks (\S+) and (\d+) more\n$", wanted)[0]
    assert first.endswith(".whl")
    (tmp_path / first).touch()
    assert publish("--check", tmp_path).endswith(f" and {int(count) - 1} more\n")


def test_publish_knows_one_option(tmp_path: Path) -> None:
    assert publish("--force", tmp_path) == (
        f"publish: found --force {tmp_path}; allowed: --check, the folder of the wheels\n"
    )


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    done = make_index(tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"index: {tmp_path} has no wheel and no source distribution: make wheels\n"
    )
