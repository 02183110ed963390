"""A real Apache with mod_wsgi, with telemetry, for a test: started, asked, and stopped by its pid.

Apache is Debian's (scripts/debian-packages), mod_wsgi PyPI's, built for it by
scripts/telemetry-clients into .venvs/telemetry-clients. Where one is not to be had, `MISSING` says
so in one line, and the tests that need it are skipped with it.
"""

from __future__ import annotations

import http.client
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = ROOT / "tests" / "apps"
CLIENTS = Path(os.environ.get("HEADWAY_TELEMETRY_CLIENTS", ROOT / ".venvs" / "telemetry-clients"))
EXPRESS = CLIENTS / "bin" / "mod_wsgi-express"
MODULES = Path("/usr/lib/apache2/modules")
APACHE = shutil.which("apache2") or "/usr/sbin/apache2"
TIMEOUT_S = 30

# mod_wsgi serves nothing as root, and another user may not reach an interpreter below /root.
USER = "www-data"
AS_USER = (
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--pdeathsig=TERM"),
)
CONFIGURATION = """\
ServerRoot {folder}
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
ErrorLog {folder}/error.log
LogLevel info
PidFile {folder}/httpd.pid
Mutex file:{folder}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
{wsgi_module}
ServerLimit 1
StartServers 1
ThreadLimit 32
ThreadsPerChild 32
MaxRequestWorkers 32
KeepAlive On
KeepAliveTimeout 60
MaxKeepAliveRequests 0
WSGISocketPrefix {folder}/wsgi
WSGITelemetryService unix:{telemetry} interval={interval_s}
WSGITelemetryOptions +CaptureUserAgent
WSGISlowRequests {slow_s}
WSGIDaemonProcess site processes={processes} threads={threads} python-path={apps} \
graceful-timeout=2 shutdown-timeout=2 {options}
WSGIProcessGroup site
WSGIApplicationGroup {application_group}
WSGIScriptAlias / {folder}/application.wsgi
<Directory {folder}>
  Require all granted
</Directory>
"""


class Shape(NamedTuple):
    processes: int = 2
    threads: int = 5
    interval_s: float = 0.5
    slow_s: float = 0.05
    application_group: str = "%{GLOBAL}"
    options: str = ""


def missing() -> str | None:
    if not Path(APACHE).exists() or not MODULES.exists():
        return "there is no Apache: scripts/debian-packages installs Debian's"
    if not EXPRESS.exists():
        return "there is no mod_wsgi: scripts/telemetry-clients builds PyPI's"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "root needs setpriv to start Apache as another user"
    return None


MISSING = missing()


class Apache:
    """`folder` is one that another user can reach: not below pytest's, which are private."""

    def __init__(self, folder: Path, telemetry: Path, shape: Shape, *before: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self.folder = folder
        module = subprocess.run([EXPRESS, "module-config"], capture_output=True, text=True)
        (folder / "application.wsgi").write_text("from telemetry_pages import app as application\n")
        configuration = folder / "httpd.conf"
        configuration.write_text(
            CONFIGURATION.format(
                folder=folder,
                port=self.port,
                modules=MODULES,
                wsgi_module=module.stdout,
                telemetry=telemetry,
                apps=APPS,
                **shape._asdict(),
            )
        )
        words = [*before, APACHE, "-DFOREGROUND", "-f", str(configuration)]
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
            words = [*before, *AS_USER, APACHE, "-DFOREGROUND", "-f", str(configuration)]
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
