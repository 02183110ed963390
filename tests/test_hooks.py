"""No hook of the meter reaches code that panics or allocates, in the module as it is linked."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway import _native

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "check_hooks.py"

needs_objdump = pytest.mark.skipif(
    shutil.which("objdump") is None, reason="objdump is missing: install binutils"
)


def check(module: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SCRIPT), str(module)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_objdump
@pytest.mark.slow("disassembles the module")
def test_no_hook_can_panic() -> None:
    assert _native.__file__ is not None
    result = check(Path(_native.__file__))
    assert (result.returncode, result.stderr.strip()) == (0, "")


@needs_objdump
def test_a_module_without_the_hooks_is_a_failure() -> None:
    program = shutil.which("true")
    assert program is not None
    result = check(Path(program))
    assert result.returncode == 1
    assert "is not in the module" in result.stderr
