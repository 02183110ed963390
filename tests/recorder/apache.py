"""A real Apache with mod_wsgi, with telemetry, for a test: started, asked, and stopped by its pid.

Apache is Debian's (scripts/debian-packages), mod_wsgi PyPI's, built for it by
scripts/telemetry-clients into .venvs/telemetry-clients. Where one is not to be had, `MISSING` says
so in one line, and the tests that need it are skipped with it.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

apache = pytest.importorskip(
    "headway_lab.measured.apache", reason="headway-lab is not installed (make lab)"
)

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = ROOT / "tests" / "apps"
CLIENTS = Path(os.environ.get("HEADWAY_TELEMETRY_CLIENTS", ROOT / ".venvs" / "telemetry-clients"))
EXPRESS = CLIENTS / "bin" / "mod_wsgi-express"
TIMEOUT_S = 30

DIRECTIVES = """\
ErrorLog {folder}/error.log
LogLevel info
KeepAliveTimeout 60
WSGITelemetryService unix:{telemetry} interval={interval_s}
WSGITelemetryOptions +CaptureUserAgent
WSGISlowRequests {slow_s}
WSGIDaemonProcess site processes={processes} threads={threads} python-path={apps} \
home={folder} graceful-timeout=2 shutdown-timeout=2 {options}
WSGIProcessGroup site
WSGIApplicationGroup {application_group}
"""


class Shape(NamedTuple):
    processes: int = 2
    threads: int = 5
    interval_s: float = 0.5
    slow_s: float = 0.05
    application_group: str = "%{GLOBAL}"
    options: str = ""


def missing() -> str | None:
    if without := apache.missing():
        return without
    if not EXPRESS.exists():
        return "there is no mod_wsgi: scripts/telemetry-clients builds PyPI's"
    return None


MISSING = missing()


class Apache:
    """`folder` is one that another user can reach: not below pytest's, which are private."""

    def __init__(self, folder: Path, telemetry: Path, shape: Shape, *before: str) -> None:
        self.port = apache.free_port()
        self.folder = folder
        directives = DIRECTIVES.format(
            folder=folder, telemetry=telemetry, apps=APPS, **shape._asdict()
        )
        application = "from telemetry_pages import app as application\n"
        words = [*before, *apache.command(folder, self.port, EXPRESS, application, directives)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self.get("/")
                return
            except (OSError, http.client.HTTPException):
                if self.process.poll() is not None or time.monotonic() > end_s:
                    self.stop()
                    raise AssertionError(f"Apache does not answer: {self.log()}") from None
            time.sleep(0.05)

    def log(self) -> str:
        log = self.folder / "error.log"
        return log.read_text(errors="replace")[-4000:] if log.exists() else "it says nothing"

    def get(self, path: str, body: bytes | None = None) -> int:
        """The response's status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST" if body else "GET", path, body, {"User-Agent": "test"})
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def workers(self) -> list[int]:
        """Apache's children: the daemon processes and the one that takes connections."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sorted(map(int, children))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def __enter__(self) -> Apache:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
