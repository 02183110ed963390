"""Which peers are installed, and why others are not. See install_peers.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from builds import THIS_BUILD, Build
from peers import PEERS, ROOT, Server

from headway.programs.processes import ProgramError
from headway_lab.measured import apache

PEERS_FOLDER = ROOT / ".venvs" / "peers"
FREE_THREADED_PEERS_FOLDER = ROOT / ".venvs" / "peers-free-threaded"
INSTALL = "run bench/install_peers.py"


def folder_for(free_threaded: bool) -> Path:
    """The environment for a kind of build. Extension modules differ between the two kinds."""
    return FREE_THREADED_PEERS_FOLDER if free_threaded else PEERS_FOLDER


VERSIONS = """\
import json, sys
from importlib.metadata import PackageNotFoundError, version
def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
names = {name: installed(name) for name in sys.argv[1:]}
print(json.dumps({"build": sys.version.split()[0] + sys.abiflags, "versions": names}))
"""


class Installed:
    """The requested peers that are installed, and the reasons why the others are not. Without a
    requested peer the folder need not exist. The peers must have the same build of CPython as the
    server that they are compared with."""

    def __init__(
        self, names: Sequence[str], folder: Path = PEERS_FOLDER, build: Build = THIS_BUILD
    ) -> None:
        self.bin = folder / "bin"
        self._build = build
        self.versions: dict[str, str] = {}
        self.absent: dict[str, str] = {}
        found = self._ask([PEERS[name].distribution for name in names])
        for name in names:
            version = found[PEERS[name].distribution]
            if version is None:
                self.absent[name] = self._reason(name)
            elif name == "mod_wsgi" and (without := apache.missing()):
                self.absent[name] = without
            else:
                self.versions[name] = version

    def _ask(self, distributions: Sequence[str]) -> dict[str, str | None]:
        if not distributions:
            return {}
        python = self.bin / "python"
        if not python.exists():
            raise ProgramError(f"there are no peers in {self.bin.parent}: {INSTALL}", 2)
        asked = subprocess.run(
            [str(python), "-c", VERSIONS, *distributions],
            capture_output=True,
            text=True,
            check=True,
        )
        answer = json.loads(asked.stdout)
        if answer["build"] != self._build.version:
            raise ProgramError(
                f"{python} is CPython {answer['build']}, {self._build.python} is "
                f"{self._build.version}: {INSTALL} with that",
                2,
            )
        versions: dict[str, str | None] = answer["versions"]
        return versions

    def _reason(self, name: str) -> str:
        """The reason that bench/install_peers.py left behind when it failed."""
        note = self.bin.parent / f"{name}.failed"
        return note.read_text().strip() if note.exists() else f"not installed: {INSTALL}"

    def servers(self, processes: int, threads: int) -> list[Server]:
        """The installed peers that support this shape. Those without threads have one thread."""
        return [
            Server(name, processes, threads)
            for name in self.versions
            if (threads == 1 or PEERS[name].has_threads)
            and (processes == 1 or PEERS[name].has_processes)
        ]

    def __str__(self) -> str:
        present = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [f"peers: {present or 'none'}"]
        lines += [f"without {name}: {reason}" for name, reason in self.absent.items()]
        return "\n".join(lines)
