"""The settings that programs are measured under, and the start of a program under one.

A setting determines the scheduler of the GIL: plain python with a switch interval, or `headway run
--policy`. `headway.programs.processes` controls the programs and ends them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.programs import processes
from headway.programs.processes import LIFETIME_S, ChildProgram, ProgramError

PROGRAMS = Path(__file__).resolve().parent / "measured" / "programs"


class Setting(NamedTuple):
    """The scheduler of the GIL, CPython alone (`policy` is None) or Headway, and the interpreter
    with its options (`-X gil=0`)."""

    policy: str | None
    switch_interval_s: float
    python: str = sys.executable
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.policy or f"stock {self.switch_interval_s * 1e3:g} ms"

    def parameters(self) -> dict[str, Any]:
        """The setting as parameters of a row."""
        return {"policy": self.policy, "switch_interval": self.switch_interval_s}

    def command(self, *words: str, options: Sequence[str] = ()) -> list[str]:
        """`python WORDS...`, or `headway run OPTIONS... WORDS...`."""
        python = [self.python, *self.options]
        if self.policy is None:
            return [*python, *words]
        run = [*python, "-m", "headway", "run", "--policy", self.policy]
        run += ["--switch-interval", str(self.switch_interval_s), *options]
        return [*run, *words]


STOCK = Setting(None, DEFAULT_SWITCH_INTERVAL_S)


def stock_and(policies: Sequence[str]) -> list[Setting]:
    """The settings that most benchmarks compare, at the default switch interval."""
    return [STOCK, *(Setting(policy, DEFAULT_SWITCH_INTERVAL_S) for policy in policies)]


def python_path() -> str:
    """The directory `programs/`, and the directories that the user has set."""
    return os.pathsep.join(filter(None, (str(PROGRAMS), os.environ.get("PYTHONPATH"))))


def started(
    command: Sequence[str],
    name: str,
    *,
    pass_fds: Sequence[int] = (),
    speaks: bool = True,
    environment: Mapping[str, str] | None = None,
    lifetime_s: int = LIFETIME_S,
) -> AbstractContextManager[ChildProgram]:
    """`processes.started`, for programs in any folder that use the modules of `programs/`."""
    return processes.started(
        command,
        name,
        pass_fds=pass_fds,
        speaks=speaks,
        environment={"PYTHONPATH": python_path(), **(environment or {})},
        lifetime_s=lifetime_s,
    )


def program(
    setting: Setting, script: str, *arguments: str, folder: Path = PROGRAMS
) -> AbstractContextManager[ChildProgram]:
    """A program of `programs/`, or of another folder, under `setting`. It is run from its file, so
    that an interpreter without Headway can run it too."""
    words = [str(folder / f"{script}.py"), *arguments]
    return started(setting.command(*words), f"{script}.py under {setting.name}")


def check_policies(policies: Sequence[str], python: str = sys.executable) -> None:
    """Raises ProgramError if `headway run` does not have one of the policies."""
    for policy in policies:
        command = Setting(policy, DEFAULT_SWITCH_INTERVAL_S, python).command("-c", "pass")
        tried = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if tried.returncode != 0:
            said = tried.stderr.strip().splitlines() or ["it says nothing"]
            raise ProgramError(f"--policy {policy}: {said[-1]}", exit_code=2)
