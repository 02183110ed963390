"""The build backend (PEP 517) that `pip install .` calls: maturin's, after the dashboard is built.
`complete_wheel.py` adds what maturin does not.

pip shows what a successful build prints only with -v, so a request to build the dashboard first
would not be seen. Without Node.js the package has no dashboard, and `headway telemetry` says so.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin
from maturin import (
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    build_dashboard()
    name: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    made = str(Path(wheel_directory, name))
    subprocess.run([sys.executable, "scripts/complete_wheel.py", made, sys.executable], check=True)
    return name


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    build_dashboard()
    name: str = maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    build_dashboard()
    name: str = maturin.build_sdist(sdist_directory, config_settings)
    return name


def build_dashboard() -> None:
    """Raises `SystemExit` if the dashboard's build fails. The current directory is the source."""
    # A source distribution has the built dashboard instead of its sources.
    if Path("web").is_dir() and subprocess.call(["scripts/dashboard", "build"]) != 0:
        raise SystemExit("build_backend: the dashboard could not be built; the reason is above")
