"""Makes an index of the wheels and source distributions in dist/, from which pip and uv install:
dist/simple, a folder for any static web server or a file:// URL, and dist/SHA256SUMS.

Usage: scripts/index.py [DIST]

The pages are those of the simple repository API (PEP 503), with the hash of each file, the Python
that it requires, and its metadata as a file of its own (PEP 658 and 714), which installers read
without the wheel. dist/simple holds the files themselves, as hard links where the file system has
them. It is made anew each time, from all files that dist/ has, and is the same for the same files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from html import escape
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0">
<title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def make(dist: Path) -> list[Path]:
    """The files that the index has, by name. Raises `ValueError` if there are none."""
    files = sorted([*dist.glob("*.whl"), *dist.glob("*.tar.gz")])
    if not files:
        raise ValueError(f"{dist} has no wheel and no source distribution: make wheels")
    new, simple = dist / "simple.new", dist / "simple"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    projects: dict[str, list[str]] = {}
    sums = []
    for file in files:
        digest = sha256(file.read_bytes())
        sums.append(f"{digest}  {file.name}\n")
        project = re.sub(r"[-_.]+", "-", file.name.partition("-")[0]).lower()
        folder = new / project
        folder.mkdir(exist_ok=True)
        link_or_copy(file, folder / file.name)
        metadata = read_metadata(file)
        attributes = {"data-requires-python": message_from_bytes(metadata)["Requires-Python"]}
        if file.suffix == ".whl":
            # The digest that installers check is that of the served file.
            (folder / f"{file.name}.metadata").write_bytes(metadata)
            attributes["data-core-metadata"] = f"sha256={sha256(metadata)}"
            attributes["data-dist-info-metadata"] = f"sha256={sha256(metadata)}"
        link = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
        projects.setdefault(project, []).append(
            f'<a href="{quote(file.name)}#sha256={digest}"{link}>{escape(file.name)}</a><br>'
        )
    for project, links in projects.items():
        write_page(new / project, f"Links for {project}", links)
    write_page(new, "Simple index", [f'<a href="{each}/">{each}</a><br>' for each in projects])
    shutil.rmtree(simple, ignore_errors=True)
    new.rename(simple)
    (dist / SUMS).write_text("".join(sums))
    return files


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def link_or_copy(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)


def read_metadata(file: Path) -> bytes:
    """Raises ValueError for a file that is no distribution."""
    try:
        return metadata_in(file)
    except (ValueError, KeyError, AssertionError, OSError, tarfile.TarError, zipfile.BadZipFile):
        raise ValueError(
            f"{file.name}: found no metadata of a distribution; allowed: what `make wheels` made"
        ) from None


def metadata_in(file: Path) -> bytes:
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            (name,) = (
                each
                for each in archive.namelist()
                if re.fullmatch(r"[^/]+\.dist-info/METADATA", each)
            )
            return archive.read(name)
    with tarfile.open(file) as archive:
        found = archive.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert found is not None, "it is no file"
        return found.read()


def write_page(folder: Path, title: str, links: Sequence[str]) -> None:
    (folder / "index.html").write_text(PAGE.format(title=title, links="\n".join(links)))


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    if len(arguments) > 1:
        found = " ".join(arguments)
        print(f"index: found {found}; allowed: the folder of the wheels", file=sys.stderr)
        return 2
    dist = Path(arguments[0]) if arguments else ROOT / "dist"
    try:
        files = make(dist)
    except ValueError as error:
        print(f"index: {error}", file=sys.stderr)
        return 2
    print(f"index: {len(files)} files in {dist}/simple; their hashes are in {dist}/{SUMS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
