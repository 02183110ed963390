"""The wheel that tests install, and virtual environments to install it into.

The wheel is the one that `scripts/build` has installed, or the file that HEADWAY_WHEEL names, which
must be for the interpreter of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TAG = "cp{}{}{}".format(*sys.version_info[:2], sys.abiflags)
UV = ROOT / ".venvs/tools/bin/uv"
LIMIT_S = 100


def find_wheel() -> Path:
    named = os.environ.get("HEADWAY_WHEEL")
    if named:
        return Path(named).resolve()
    (built,) = (ROOT / "target/wheels" / TAG).glob("*.whl")
    return built


class Environment:
    """A virtual environment, and what runs in it without the variables of the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, symlinks=True)
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HEADWAY", "PYTHON"))
        }

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, name: str, *arguments: str | Path) -> str:
        return self._run([self.program(name), *map(str, arguments)])

    def pip(self, *arguments: str | Path) -> str:
        """Some interpreters have no pip of their own, so that of the build's tools works here."""
        tools = ROOT / ".venvs/tools/bin/python"
        runner = str(tools if tools.exists() else sys.executable)
        options = ["--disable-pip-version-check", "--python", self.program("python")]
        return self._run([runner, "-m", "pip", *options, *map(str, arguments)])

    def uv(self, *arguments: str | Path) -> str:
        action, *rest = map(str, arguments)
        where = ["--no-config", "--no-cache", "--python", self.program("python")]
        return self._run([str(UV), "pip", action, *where, *rest])

    def install(self, wheel: Path) -> None:
        self.pip("install", "--no-index", "--no-cache-dir", wheel)

    def _run(self, command: list[str]) -> str:
        return self.finished(command).stdout

    def finished(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            env={**self.variables, **variables},
            cwd=self.folder.parent,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def files(self) -> set[str]:
        """All files but bytecode, which Python writes for what it imports."""
        found = (path for path in self.folder.rglob("*") if "__pycache__" not in path.parts)
        return {str(path.relative_to(self.folder)) for path in found}
