"""The debugger that the tests of this folder need."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest


@pytest.fixture
def working_gdb(request: pytest.FixtureRequest) -> None:
    """Skips a test if gdb cannot call a function in a process here, unless it has its own gdb."""
    own: tuple[str, ...] = getattr(request.module, "OWN_GDB", ())
    if sys.version_info < (3, 14) and request.function.__name__ not in own:
        failure = failure_of_gdb()
        if failure is not None:
            pytest.skip(f"gdb cannot call a function in a process here: {failure}")


@functools.cache
def failure_of_gdb() -> str | None:
    """The last line that gdb said. gdb 13 cannot write the registers of processors with AMX."""
    sleeping = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        command = ["gdb", "-nx", "-batch", "-p", str(sleeping.pid), "-ex", "print (int)getpid()"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        sleeping.kill()
        sleeping.wait()
    if f"= {sleeping.pid}\n" in found.stdout:
        return None
    return ((found.stderr.strip() or found.stdout.strip()).splitlines() or [""])[-1]
