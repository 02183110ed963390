"""The Python that runs the processes of a group, and whether they have a GIL (PEP 703).

A free-threaded build can run with a GIL or without one. The command line of each process decides,
and never PYTHON_GIL, because programs that the application starts would inherit the variable. This
module does not look at the imports of applications.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from typing import NamedTuple

from headway.errors import CommandError
from headway.server.file_state import MISSING, FileState, state_of

BUILD_TIMEOUT_S = 30
OF_THIS_PYTHON = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# The arguments of a Python that tells its build and its version of Headway, in two lines.
QUESTION = (
    "-I",
    "-c",
    "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED'), flush=True); "
    "import headway, headway._native; print(headway.__version__)",
)
ALLOWED = "a free-threaded build of CPython, 3.13t or later, to run headway or as python-home"

# The state of each Python's file when it was asked, and its answer, by its python-home.
_known: dict[str, tuple[FileState, bool | None]] = {}
_may_ask = True


def interpreter(python_home: str | None) -> str:
    """The path of the Python that the processes run: this one, or that of `python_home`."""
    if python_home is None:
        return sys.executable
    return os.path.join(python_home, "bin", "python")


class Answer(NamedTuple):
    """The output of a Python with the arguments `QUESTION`; `None` and "" for what is missing."""

    is_free_threaded: bool | None
    version: str


def read_answer(text: str) -> Answer:
    """`text` is the output of a Python with the arguments `QUESTION`."""
    build, version, *_ = [*text.split("\n"), "", ""]
    return Answer({"1": True, "0": False, "None": False}.get(build.strip()), version.strip())


class Unasked(Exception):
    """A Python has to be asked first, which takes as long as its start."""

    def __init__(self, python_home: str) -> None:
        super().__init__(python_home)
        self.python_home = python_home


@contextlib.contextmanager
def asking_nobody() -> Iterator[None]:
    """While entered, `is_free_threaded` raises `Unasked` where it would wait for another Python."""
    global _may_ask
    _may_ask = False
    try:
        yield
    finally:
        _may_ask = True


def is_free_threaded(python_home: str | None) -> bool | None:
    """Whether that Python can run without a GIL. `None` if it does not start; other code reports
    that error. A Python other than this one is asked once, unless its file is replaced."""
    if python_home is None:
        return OF_THIS_PYTHON
    state = state_of(interpreter(python_home))
    if state == MISSING:
        return None
    known = _known.get(python_home)
    if known is not None and known[0] == state:
        return known[1]
    if not _may_ask:
        raise Unasked(python_home)
    note(python_home, _ask(interpreter(python_home)))
    return _known[python_home][1]


def note(python_home: str, answer: bool | None) -> None:
    """Keeps what that Python has answered to `QUESTION`. No answer does not replace an earlier one,
    which holds for the processes that run."""
    if answer is not None or python_home not in _known:
        _known[python_home] = state_of(interpreter(python_home)), answer


def _ask(python: str) -> bool | None:
    try:
        asked = subprocess.run(
            [python, *QUESTION], capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return read_answer(asked.stdout).is_free_threaded


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
    no option. A Python that was asked is not asked again: the supervisor must not wait when it
    starts a process."""
    known = _known.get(python_home) if python_home is not None else None
    if not (known[1] if known is not None else is_free_threaded(python_home)):
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
