"""Apache with the mod_wsgi of an interpreter, configured for the experiment `wsgi`.

This module does not know loads and reports.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headway_lab.measured import apache
from headway_lab.setting import PROGRAMS

GROUP = "bench"
# The first version that reports.
LEAST_VERSION = 6
TIMEOUT_S = 30
DIRECTIVES = (
    apache.TO_STDERR
    + """\
KeepAliveTimeout 600
WSGIRestrictEmbedded On
WSGITelemetryService unix:{telemetry} interval={report_interval_s}
{free_threading}
WSGIDaemonProcess {group} processes={processes} threads={threads} python-path={programs} \
home={folder} graceful-timeout=1 shutdown-timeout=1 {switch_interval}
WSGIProcessGroup {group}
WSGIApplicationGroup %{{GLOBAL}}
"""
)


class Site(NamedTuple):
    """One start of Apache, in a folder of its own. It is free-threaded without a switch
    interval."""

    express: Path
    folder: Path
    socket: Path
    report_interval_s: float
    processes: int
    threads: int
    switch_interval_s: float | None


def command(site: Site, port: int) -> list[str]:
    """See `apache.command`."""
    interval_s = site.switch_interval_s
    directives = DIRECTIVES.format(
        telemetry=site.socket,
        folder=site.folder,
        report_interval_s=site.report_interval_s,
        free_threading="WSGIFreeThreading On" if interval_s is None else "",
        group=GROUP,
        processes=site.processes,
        threads=site.threads,
        programs=PROGRAMS,
        switch_interval="" if interval_s is None else f"switch-interval={interval_s}",
    )
    application = "from wsgi_page import application\n"
    return apache.command(site.folder, port, site.express, application, directives)


def find_express(python: str, free_threading: bool) -> Path:
    """The mod_wsgi-express of an interpreter's environment, or else the one on PATH, which usually
    belongs to a build with a GIL."""
    beside = Path(python).parent / "mod_wsgi-express"
    on_path = None if free_threading else shutil.which("mod_wsgi-express")
    return Path(on_path) if on_path and not beside.exists() else beside


def missing(python: str, free_threading: bool) -> str:
    """The reason why mod_wsgi cannot serve with this interpreter, and the remedy; empty if it
    can."""
    if without := apache.missing():
        return without
    express = find_express(python, free_threading)
    if not express.exists():
        return (
            f"there is neither {express} nor one on PATH that could do: in Headway's "
            f"source tree run `.venvs/tools/bin/uv pip install --python {python} mod_wsgi`"
        )
    version = installed_version(express)
    if version is not None and int(version.split(".")[0]) < LEAST_VERSION:
        return f"{express} is mod_wsgi {version}, and reports from {LEAST_VERSION}.0 on: upgrade it"
    return ""


@cache
def installed_version(express: Path) -> str | None:
    """The version that the interpreter beside it reports; None without an interpreter."""
    python = express.resolve().parent / "python"
    question = "from importlib.metadata import version; print(version('mod_wsgi'))"
    try:
        asked = subprocess.run(
            [python, "-c", question],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()
