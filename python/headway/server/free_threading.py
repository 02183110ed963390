"""Which Python runs the processes of a group, and whether they have a GIL (PEP 703).

A free-threaded build can run with a GIL or without one. Which of the two is said on the command
line of each process, never by PYTHON_GIL: what the application starts would inherit that. Knows
nothing of what applications import.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from functools import lru_cache

from headway.errors import CommandError

BUILD_TIMEOUT_S = 30
OF_THIS_PYTHON = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
ALLOWED = "a free-threaded build of CPython, 3.13t or later, to run headway or as python-home"


def interpreter(python_home: str | None) -> str:
    """The Python that the processes run: this one, or that of `python_home`."""
    if python_home is None:
        return sys.executable
    return os.path.join(python_home, "bin", "python")


def is_free_threaded(python_home: str | None) -> bool | None:
    """Whether that Python can do without a GIL; `None` if it does not run, which is for others to
    complain of. Another Python than this one is asked once, unless it is replaced."""
    if python_home is None:
        return OF_THIS_PYTHON
    python = interpreter(python_home)
    try:
        found = os.stat(python)
    except OSError:
        return None
    return _ask(python, found.st_dev, found.st_ino, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _ask(python: str, *_: int) -> bool | None:
    program = "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED'))"
    try:
        asked = subprocess.run(
            [python, "-I", "-c", program], capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() == "1" if asked.returncode == 0 else None


def gil_enabled() -> bool:
    """Whether this process has a GIL now: an extension module may turn it on."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def refuse_other_mode(wanted: bool | None) -> None:
    """Raises `CommandError` unless this process runs as wanted, with a GIL or without: only at the
    start of Python is there a choice. `None`: either way."""
    if wanted is None or wanted != gil_enabled():
        return
    is_so = f"free_threading is {wanted}, and Python runs {'with' if wanted else 'without'} a GIL"
    if wanted and not OF_THIS_PYTHON:
        allowed = "a free-threaded build of CPython, 3.13t or later"
    else:
        allowed = f"started as python -X gil={0 if wanted else 1}"
    raise CommandError(f"{is_so}; allowed: {allowed}", exit_code=2)


def will_have_gil(python_home: str | None, free_threading: bool) -> bool:
    return not (free_threading and is_free_threaded(python_home))


def mode_flags(python_home: str | None, free_threading: bool) -> list[str]:
    """The -X gil option for the command line of a process. It is explicit in both cases, so that
    PYTHON_GIL does not override it and no extension module turns the GIL on. Builds with a GIL get
    no option."""
    if not is_free_threaded(python_home):
        return []
    return ["-X", f"gil={0 if free_threading else 1}"]


def other_flags() -> list[str]:
    """The options of this interpreter for the others, mostly -X and -W, without -X gil: of two,
    CPython heeds the first, and a build with a GIL refuses -X gil=0."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    kept: list[str] = []
    for flag in flags:
        if kept and kept[-1] == "-X" and flag.startswith("gil="):
            kept.pop()
        else:
            kept.append(flag)
    return kept
