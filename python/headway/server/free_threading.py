"""The Python that runs the processes of a group, and whether they have a GIL (PEP 703).

A free-threaded build can run with a GIL or without one. The command line of each process decides,
and never PYTHON_GIL, because programs that the application starts would inherit the variable. This
module does not look at the imports of applications.
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
    """The path of the Python that the processes run: this one, or that of `python_home`."""
    if python_home is None:
        return sys.executable
    return os.path.join(python_home, "bin", "python")


def is_free_threaded(python_home: str | None) -> bool | None:
    """Whether that Python can run without a GIL. `None` if it does not start; other code reports
    that error. A Python other than this one is asked once, unless its file is replaced."""
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
    """Whether this process has a GIL at the moment. An extension module may turn it on."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def refuse_other_mode(wanted: bool | None) -> None:
    """Raises `CommandError` unless this process runs in the wanted mode, which is chosen when
    Python starts. `None` accepts both modes."""
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
    """The options of this interpreter for other processes, mostly -X and -W, without -X gil: if it
    is given twice CPython uses the first one, and a build with a GIL refuses -X gil=0."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    kept: list[str] = []
    for flag in flags:
        if kept and kept[-1] == "-X" and flag.startswith("gil="):
            kept.pop()
        else:
            kept.append(flag)
    return kept
