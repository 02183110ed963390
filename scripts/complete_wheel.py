"""Completes a wheel that maturin has built: adds the bytecode of its modules, so that no start has
to compile them, and makes its SBOM (PEP 770) the same on every machine, with the packages of the
dashboard in it.

Usage: scripts/complete_wheel.py WHEEL [PYTHON]

PYTHON is a CPython of the wheel's version; without it the wheel gets no bytecode. A free-threaded
build and one with a GIL run the same bytecode. The wheel is replaced; a completed one stays as it
is. docs/design/packages.md has the reasons.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class CompletionError(Exception):
    """Why a wheel cannot be completed, in one line."""


def complete(wheel: Path, python: str | Path | None) -> None:
    """Raises `CompletionError`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            archive.extractall(folder)
        (record,) = (name for name in infos if name.endswith(".dist-info/RECORD"))
        for file in folder.glob("*.dist-info/sboms/*.json"):
            bom = json.loads(file.read_text())
            plain_bom(bom)
            if (folder / "headway/recorder/static/index.html").exists():
                bom["components"] = with_dashboard(bom["components"])
            file.write_text(json.dumps(bom, indent=2) + "\n")
        if python is not None:
            compile_modules(wheel, folder, python)
        found = sorted(
            str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
        )
        # Those of the archive in their order, then the bytecode.
        names = [*infos, *(name for name in found if name not in infos)]
        names.remove(record)
        rows = [row(name, (folder / name).read_bytes()) for name in names]
        (folder / record).write_text("".join([*rows, f"{record},,\n"]))
        new = wheel.with_suffix(".new")
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in [*names, record]:
                like = infos.get(name, infos[record])
                info = zipfile.ZipInfo(name, like.date_time)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = like.external_attr
                archive.writestr(info, (folder / name).read_bytes())
    new.replace(wheel)


def compile_modules(wheel: Path, folder: Path, python: str | Path) -> None:
    """Each .pyc file has the hash of its source (PEP 552): an installer may give the sources any
    time of modification, and a source that somebody edits is compiled again. The import system
    replaces the names of sources in it by their paths."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Up to CPython 3.10 the order of a set in bytecode depends on the seed.
    environment = {**kept, "PYTHONHASHSEED": "0"}
    print_tag = "import sys; print('cp%d%d' % sys.version_info[:2])"
    said = subprocess.run(
        [python, "-S", "-c", print_tag], env=environment, capture_output=True, text=True
    )
    if f"-{said.stdout.strip() or 'none'}-" not in wheel.name:
        raise CompletionError(f"{wheel.name}: {python} is {said.stdout.strip() or 'no Python'}")
    compiler = [python, "-S", "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        done = subprocess.run(
            [*compiler, "-s", folder, package], env=environment, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise CompletionError(f"{wheel.name}: {done.stdout.strip()}")


def plain_bom(bom: dict[str, Any]) -> None:
    """Takes out of a CycloneDX document what differs between two builds of the same sources: a
    number, the time, and the folder of the sources in the names of components."""
    bom.pop("serialNumber", None)
    bom["metadata"].pop("timestamp", None)
    text = json.dumps(bom)
    bom.clear()
    bom.update(
        json.loads(re.sub(r"path\+file://[^#\"]*/(?=(lab/)?crates/)", "path+file:///", text))
    )


def with_dashboard(components: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The components and the packages that the dashboard is built of. A source distribution has the
    built dashboard without their names."""
    lock = ROOT / "web/package-lock.json"
    if not lock.exists():
        return components
    packages = []
    for path, package in json.loads(lock.read_text())["packages"].items():
        # The first entry, without a path, is the dashboard itself.
        if not path or package.get("dev") or package.get("optional"):
            continue
        name, version = path.removeprefix("node_modules/"), package["version"]
        purl = f"pkg:npm/{name}@{version}"
        packages.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "scope": "required",
                "licenses": [{"expression": package["license"]}],
                "purl": purl,
            }
        )
    return [each for each in components if each not in packages] + packages


def row(name: str, data: bytes) -> str:
    """The row of a file in RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if len(arguments) not in (1, 2) or not Path(arguments[0]).is_file():
        print(
            f"complete_wheel: found {' '.join(arguments) or 'no argument'}; "
            "allowed: the file of a wheel, and a Python of its version",
            file=sys.stderr,
        )
        return 2
    try:
        complete(Path(arguments[0]), arguments[1] if arguments[1:] else None)
    except CompletionError as error:
        print(f"complete_wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
