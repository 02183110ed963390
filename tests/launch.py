"""Runs `headway` in this process or in one of its own, and programs by plain `python`."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from headway import cli
from headway.server.system import System

PROGRAMS = Path(__file__).resolve().parent / "programs"
HEADWAY = (sys.executable, "-m", "headway")
# The factor by which this machine is slower than a common one. scripts/test-aarch64 sets it.
SLOWNESS = float(os.environ.get("HEADWAY_TEST_SLOWNESS", "1"))
TIMEOUT_S = 60 * SLOWNESS

HAS_MUSL = "musl" in str(sysconfig.get_config_var("EXT_SUFFIX"))
GIL_ENABLED = getattr(sys, "_is_gil_enabled", lambda: True)()

# The C library's own words.
ADDRESS_IN_USE = os.strerror(errno.EADDRINUSE).lower()
ADDRESS_NOT_AVAILABLE = os.strerror(errno.EADDRNOTAVAIL).lower()
TOO_MANY_OPEN_FILES = os.strerror(errno.EMFILE)

Result = subprocess.CompletedProcess[str]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what tells Headway, Python or a terminal how to be."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("HEADWAY", "PYTHON", "COLUMNS", "NO_COLOR", "RUST_BACKTRACE"))
    }
    return {**kept, "PYTHONIOENCODING": "utf-8", **changes}


def execute(command: list[str], **options: Any) -> Result:
    options = {"env": environment(), "timeout": TIMEOUT_S, "capture_output": True, **options}
    return subprocess.run(command, text=True, **options)


def python(*arguments: str | Path, **options: Any) -> Result:
    return execute([sys.executable, *map(str, arguments)], **options)


def headway(*arguments: str | Path, **options: Any) -> Result:
    return execute([*HEADWAY, *map(str, arguments)], **options)


def run_main(
    *arguments: str | Path, cwd: Path | None = None, input: str = "", **changes: str
) -> Result:
    """`headway ARGUMENTS` by a call of `cli.main`, for verbs that end by themselves and leave this
    process as it was: help, refusals, what reads files and prints. `changes` are variables of the
    environment. Takes a hundredth of the time of a process."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment(**changes), clear=True))
        stack.enter_context(
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(input.encode())))
        )
        stack.enter_context(mock.patch.object(sys, "argv", ["headway", *map(str, arguments)]))
        stack.enter_context(_signal_handlers_restored())
        # A command line that is wrongly accepted must not replace the test run or serve from it.
        for place, name in ((os, "execve"), (System, "posix_spawn")):
            stack.enter_context(mock.patch.object(place, name, side_effect=AssertionError(name)))
        if cwd is not None:
            stack.callback(os.chdir, os.getcwd())
            os.chdir(cwd)
        written = [stack.enter_context(_captured(name)) for name in ("stdout", "stderr")]
        try:
            status = cli.main([str(each) for each in arguments])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
        stdout, stderr = (each.seek(0) or each.read().decode() for each in written)
    return Result(list(map(str, arguments)), status, stdout, stderr)


@contextmanager
def _captured(name: str) -> Iterator[io.BufferedRandom]:
    """Captures the output to `sys.stdout` or `sys.stderr`, and to the file descriptor below it."""
    descriptor = {"stdout": 1, "stderr": 2}[name]
    former = os.dup(descriptor)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        try:
            with (
                open(descriptor, "w", encoding="utf-8", closefd=False) as stream,
                mock.patch.object(sys, name, stream),
            ):
                yield file
        finally:
            os.dup2(former, descriptor)
            os.close(former)


@contextmanager
def _signal_handlers_restored() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """`headway ARGUMENTS` in the background, with pipes for its output."""
    options = {
        "env": environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **options,
    }
    return subprocess.Popen([*HEADWAY, *map(str, arguments)], text=True, **options)


def report_in(stderr: str) -> str:
    """The report at the end of what `headway run` said; "" if there is none."""
    start_of_line = stderr.rfind("\nheadway  Python ") + 1
    return stderr[start_of_line:] if stderr[start_of_line:].startswith("headway  Python ") else ""


def read_json(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    return report
