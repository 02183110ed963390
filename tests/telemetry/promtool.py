"""Prometheus' own checks (scripts/debian-packages brings its promtool)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".venvs/debian/usr/bin/promtool"
TIMEOUT_S = 60


def check(*arguments: str | Path, said: bytes = b"") -> None:
    """`promtool check ARGUMENTS` finds nothing wrong."""
    promtool = shutil.which("promtool") or (str(UNPACKED) if UNPACKED.exists() else None)
    if promtool is None:
        pytest.skip("promtool is not installed: scripts/debian-packages")
    result = subprocess.run(
        [promtool, "check", *map(str, arguments)],
        input=said,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
