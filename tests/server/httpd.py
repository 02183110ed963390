"""A real httpd with mod_wsgi's embedded mode, for a test: a configuration, requests and their
statuses.

httpd is Debian's (scripts/debian-packages), mod_wsgi PyPI's (scripts/telemetry-clients). Where one
is missing, `MISSING` says so, and the tests that need it are skipped with it.
"""

from __future__ import annotations

import http.client
import os
import pwd
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

apache = pytest.importorskip(
    "headway_lab.measured.apache", reason="headway-lab is not installed (make lab)"
)

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = Path(os.environ.get("HEADWAY_TELEMETRY_CLIENTS", ROOT / ".venvs" / "telemetry-clients"))
EXPRESS = CLIENTS / "bin" / "mod_wsgi-express"
TIMEOUT_S = 30
free_port = apache.free_port
MISSING = apache.missing() or (
    None if EXPRESS.exists() else "there is no mod_wsgi: scripts/telemetry-clients builds PyPI's"
)
# Those of Debian's own configuration, and of the constructs that the tests try.
LOADED = (
    *("mpm_event", "access_compat", "alias", "allowmethods", "auth_basic", "authn_core"),
    *("authn_file", "authz_core", "authz_groupfile", "authz_host", "authz_user", "dir", "env"),
    *("expires", "filter", "deflate", "headers", "mime", "negotiation", "remoteip", "reqtimeout"),
    *("rewrite", "setenvif", "socache_shmcb", "ssl", "status", "userdir"),
)
MAIN = """\
ServerRoot {folder}
ServerName localhost
PidFile {folder}/httpd.pid
Mutex file:{folder}
ErrorLog {folder}/error.log
TypesConfig /dev/null
{modules}
ServerLimit 1
StartServers 1
ThreadLimit 8
ThreadsPerChild 8
MaxRequestWorkers 8
"""


class Request(NamedTuple):
    path: str = "/"
    method: str = "GET"
    body: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})


def main_part(folder: Path) -> str:
    """The beginning of every configuration: the modules, and httpd's files in `folder`."""
    loads = [f"LoadModule {name}_module {apache.MODULES}/mod_{name}.so" for name in LOADED]
    # Without mod_wsgi's WSGIPythonHome, which names an environment that has no Headway.
    loads += [
        line for line in apache.module_config(EXPRESS).splitlines() if line.startswith("LoadModule")
    ]
    return MAIN.format(folder=folder, modules="\n".join(loads))


class Httpd:
    """`folder` belongs to httpd's user from now on. `configuration` listens at `port`."""

    def __init__(self, folder: Path, configuration: Path, port: int) -> None:
        self.log = folder / "error.log"
        self.port = port
        words = [apache.APACHE, "-DFOREGROUND", "-f", str(configuration)]
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam(apache.USER).pw_uid, -1)
            words = [*apache.AS_USER, *words]
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def wait_until_it_listens(self) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                statuses(self.port, [Request()])
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end_s:
                    raise AssertionError(f"httpd does not answer: {self.said()}") from None
            time.sleep(0.01)

    def said(self) -> str:
        log = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
        assert self.process.stderr is not None
        error = self.process.stderr.read().decode() if self.process.poll() is not None else ""
        return error + log

    def __enter__(self) -> Httpd:
        try:
            self.wait_until_it_listens()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(TIMEOUT_S)
            finally:
                if self.process.poll() is None:
                    self.process.kill()
                    self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


def statuses(port: int, requests: Sequence[Request], *, tls: bool = False) -> list[int]:
    """The status of each request, on connections of their own; 0 where the server ends the
    connection during TLS's handshake."""
    return [_status(port, request, tls) for request in requests]


def _status(port: int, request: Request, tls: bool) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection: http.client.HTTPConnection
    if tls:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        headers = {"Host": "localhost", **request.headers}
        connection.request(request.method, request.path, request.body, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    except ssl.SSLError:
        return 0
    finally:
        connection.close()


__all__ = ["MISSING", "Httpd", "Request", "free_port", "main_part", "statuses"]
