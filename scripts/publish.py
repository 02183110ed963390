"""Publishes what `make wheels` left in dist/, with the credentials of the person who calls it.

Usage: UV_PUBLISH_TOKEN=... python3 scripts/publish.py [--check] [DIST]

--check does everything but the upload. The tag v0.1.0, on which .github/workflows/wheels.yml
publishes without a stored credential, is the usual way: it also signs each file. This script is for
a release without that, and for an index of one's own (UV_PUBLISH_URL).

Nothing is uploaded unless dist/ has the wheels of all versions and architectures and the source
distributions of both packages, and nothing else; each wheel has bytecode; the files are those of
dist/SHA256SUMS; and git has no change since the version's tag.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from index import SUMS, sha256
from wheels import DIST, PACKAGES, ROOT, TOOLS, WHEELS


class PublishError(Exception):
    """Why nothing is published, in one line."""


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    folders = [word for word in arguments if word != "--check"]
    if len(folders) > 1 or any(word.startswith("-") for word in folders):
        found = " ".join(arguments)
        print(
            f"publish: found {found}; allowed: --check, the folder of the wheels", file=sys.stderr
        )
        return 2
    dist = Path(folders[0]).resolve() if folders else DIST
    try:
        version = find_version()
        files = find_files(dist, version)
        check_sums(dist, files)
        check_tag(f"v{version}")
    except PublishError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 2
    print(f"publish: {len(files)} files of version {version}", flush=True)
    if "--check" in arguments:
        return 0
    if not (TOOLS / "uv").exists():
        print(f"publish: there is no {TOOLS / 'uv'}: run scripts/tools", file=sys.stderr)
        return 2
    # uv takes the credentials, and the index, from its own variables.
    return subprocess.call([TOOLS / "uv", "publish", "--no-config", *files], cwd=ROOT)


def find_version() -> str:
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None, "pyproject.toml has a version"
    return found[1]


def find_files(dist: Path, version: str) -> list[Path]:
    wheels = [
        f"{package.name}-{version}{wheel.ending}"
        for package in PACKAGES
        for wheel in WHEELS.values()
    ]
    wanted = {*wheels, *(f"{package.name}-{version}.tar.gz" for package in PACKAGES)}
    found = {path.name for path in [*dist.glob("*.whl"), *dist.glob("*.tar.gz")]}
    for names, what in ((wanted - found, "lacks"), (found - wanted, "also has")):
        if names:
            more = f" and {len(names) - 1} more" if names - {min(names)} else ""
            raise PublishError(f"{dist} {what} {min(names)}{more}")
    for name in wheels:
        with zipfile.ZipFile(dist / name) as archive:
            if not any(each.endswith(".pyc") for each in archive.namelist()):
                raise PublishError(
                    f"{name} has no bytecode: its version was missing when it was built"
                )
    return sorted(dist / name for name in wanted)


def check_sums(dist: Path, files: Sequence[Path]) -> None:
    made = "".join(f"{sha256(file.read_bytes())}  {file.name}\n" for file in files)
    sums = dist / SUMS
    if not sums.exists() or sums.read_text() != made:
        raise PublishError(f"{sums} does not have the hashes of the files: scripts/index.py")


def check_tag(tag: str) -> None:
    def git(*words: str) -> str:
        # No variable names another repository, as in a hook of git.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(["git", *words], cwd=ROOT, env=kept, capture_output=True, text=True)
        return done.stdout.strip()

    if tag not in git("tag", "--points-at", "HEAD").split():
        raise PublishError(f"git's HEAD does not have the tag {tag}")
    if git("status", "--porcelain"):
        raise PublishError("git has changes that are not committed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
