"""Instructions as valgrind's callgrind counts them: they do not depend on what else the machine
does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

FEW, MANY = 1_000, 51_000


class Instructions(NamedTuple):
    """The instructions of one operation: all, and those of Headway's extension module alone."""

    all: float
    headway: float


def per_operation(python: Path | str, code: str) -> Instructions | None:
    """Counts what one operation executes. `code` does as many of them as `sys.argv[1]` says.
    Returns None without valgrind, or if the code fails under it."""
    if shutil.which("valgrind") is None:
        return None
    counted = []
    for count in (FEW, MANY):
        found = _count(str(python), code, count)
        if found is None:
            return None
        counted.append(found)
    pairs = zip(*counted, strict=True)
    return Instructions(*((last - first) / (MANY - FEW) for first, last in pairs))


def _count(python: str, code: str, count: int) -> tuple[int, int] | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={file}"]
        # The order of sets and dicts is the same in all runs.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        ran = subprocess.run(
            [*command, python, "-c", code, str(count)],
            env=environment,
            capture_output=True,
            text=True,
        )
        total = re.search(r"Collected : (\d+)", ran.stderr)
        if ran.returncode != 0 or total is None:
            return None
        return int(total[1]), _of_headway(file.read_text(errors="replace"))


def _of_headway(text: str) -> int:
    """The sum of the costs in Headway's module, in a callgrind file. The name of an object is
    written once, with its number. The line after `calls=` has the cost of the called function."""
    names: dict[str, str] = {}
    is_headway = is_call = False
    cost = 0
    for line in text.splitlines():
        if line.startswith(("ob=", "cob=")):
            key, _, value = line.partition("=")
            number, _, name = value.partition(" ")
            names.setdefault(number, name)
            if key == "ob":
                is_headway = "headway/_native" in names[number]
        elif line.startswith("calls="):
            is_call = True
        elif line[:1] in "0123456789+-*" and line:
            if is_headway and not is_call:
                cost += int(line.split()[1])
            is_call = False
    return cost
