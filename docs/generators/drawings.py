"""The drawings of the pages in `docs/explanation`, each made by `headway simulate --timeline`.

A simulation reads no clock, so the same version draws the same pictures.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# The arguments of `headway simulate` for each file.
DRAWINGS = {
    "convoy.svg": "echo --policy stock --threads 1 --switch-interval 5ms",
    "queue.svg": "echo --policy stock --threads 4 --switch-interval 5ms",
    "ticks.svg": "echo --policy ticks --threads 1 --switch-interval 5ms",
    "priority.svg": "echo --policy priority --threads 1 --switch-interval 5ms",
}


def draw(name: str, folder: Path) -> bytes:
    """Raises `CalledProcessError`, after the command has written its reason to stderr."""
    file = folder / name
    command = [sys.executable, "-m", "headway", "simulate", *DRAWINGS[name].split()]
    subprocess.run([*command, "--timeline", str(file)], check=True, stdout=subprocess.DEVNULL)
    return file.read_bytes()
