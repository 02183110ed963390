"""The interpreters for experiments: the version of each CPython, and what it supports.

This module does not know what they run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import NamedTuple

from headway.errors import CommandError, reason_of
from headway.report import columns

TIMEOUT_S = 30
MAX_REASON = 300  # columns
# The program that reports an interpreter's version and build.
QUESTION = """\
import json, platform, sys, sysconfig
try:
    import headway._native
    version = headway.__version__
except ImportError:
    version = ""
print(json.dumps({
    "version": platform.python_version(), "build": sys.version,
    "implementation": sys.implementation.name, "headway": version,
    "free_threading": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "debug": bool(sysconfig.get_config_var("Py_DEBUG")),
    "compiler": platform.python_compiler(),
    "options": sysconfig.get_config_var("CONFIG_ARGS") or "",
}))
"""


class Interpreter(NamedTuple):
    """`free_threading`: a build that can run without a GIL. `headway`: the version of its own
    Headway, "" without one, and then it measures plain CPython alone."""

    path: str
    version: str
    build: str
    free_threading: bool
    debug: bool
    compiler: str
    options: str
    headway: str

    @property
    def name(self) -> str:
        return f"{self.version}t" if self.free_threading else self.version

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    @property
    def has_own_gils(self) -> bool:
        """Whether it has sub-interpreters with a GIL of their own (PEP 684)."""
        return self.minor >= 12


@cache
def examine(path: str, option: str = "--python") -> Interpreter:
    """Asks the interpreter itself. Raises CommandError (exit code 2) if the program is not a
    Python, or is too old."""
    try:
        facts = json.loads(_ask(path))
        implementation = facts.pop("implementation")
        version = tuple(map(int, facts["version"].split(".")[:2]))
        if implementation == "cpython" and version >= (3, 10):
            return Interpreter(path=path, **facts)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"it exits with {error.returncode}"]
        reason = columns.name(said[-1], MAX_REASON)
        raise CommandError(f"{option} {path}: is no Python that runs: {reason}", 2) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it does not answer"
        raise CommandError(f"{option} {path}: is no Python that runs: {reason}", 2) from None
    except (ValueError, TypeError, AttributeError, KeyError):
        reason = "it says something else than was asked"
        raise CommandError(f"{option} {path}: is no Python that runs: {reason}", 2) from None
    found = f"{implementation} {facts['version']}"
    raise CommandError(f"{option} {path}: found {found}; CPython from 3.10 on is needed", 2)


def _ask(path: str) -> str:
    command = [path, "-c", QUESTION]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
    ).stdout


def chosen(path: str | None) -> Interpreter:
    """The interpreter of --python, or the running one. Raises CommandError like `examine`."""
    return this() if path is None else examine(path)


def this() -> Interpreter:
    """The running interpreter."""
    return examine(sys.executable)
