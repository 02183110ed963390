"""The debugger that the tests of this folder need."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def working_gdb() -> None:
    """Skips a test if gdb cannot call a function in a process here. gdb 13 cannot write the
    registers of processors with AMX."""
    if sys.version_info >= (3, 14):
        return
    sleeping = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        command = ["gdb", "-nx", "-batch", "-p", str(sleeping.pid), "-ex", "print (int)getpid()"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        sleeping.kill()
        sleeping.wait()
    if f"= {sleeping.pid}\n" not in found.stdout:
        said = (found.stderr.strip() or found.stdout.strip()).splitlines()
        pytest.skip(f"gdb cannot call a function in a process here: {said[-1] if said else ''}")
