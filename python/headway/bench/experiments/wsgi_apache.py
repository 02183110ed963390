"""Apache with mod_wsgi, for the experiment `wsgi`: where it is, and how it is started.

Apache's event MPM takes the connections, one daemon process group of mod_wsgi the requests, as its
documentation has it for production; access log off. Apache is the system's, mod_wsgi that of the
interpreter to be measured. Knows nothing of loads and reports.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headway.bench.processes import PROGRAMS, BenchmarkError

GROUP = "bench"
MODULES = Path("/usr/lib/apache2/modules")
APACHE = shutil.which("apache2") or "/usr/sbin/apache2"
# The first that reports.
LEAST_VERSION = 6
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
ErrorLog /proc/self/fd/2
LogLevel error
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
KeepAliveTimeout 600
MaxKeepAliveRequests 0
WSGISocketPrefix {folder}/wsgi
WSGIRestrictEmbedded On
WSGITelemetryService unix:{telemetry} interval={report_interval_s}
{free_threading}
WSGIDaemonProcess {group} processes={processes} threads={threads} python-path={programs} \
graceful-timeout=1 shutdown-timeout=1 {switch_interval}
WSGIProcessGroup {group}
WSGIApplicationGroup %{{GLOBAL}}
WSGIScriptAlias / {folder}/page.wsgi
<Directory {folder}>
  Require all granted
</Directory>
"""


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
    """Writes the configuration. The folder is given to Apache's user, who writes there, too. Raises
    BenchmarkError if mod_wsgi does not say where it is."""
    (site.folder / "page.wsgi").write_text("from wsgi_page import application\n")
    interval_s = site.switch_interval_s
    configuration = site.folder / "httpd.conf"
    configuration.write_text(
        CONFIGURATION.format(
            folder=site.folder,
            port=port,
            modules=MODULES,
            wsgi_module=module_config(site.express),
            telemetry=site.socket,
            report_interval_s=site.report_interval_s,
            free_threading="WSGIFreeThreading On" if interval_s is None else "",
            group=GROUP,
            processes=site.processes,
            threads=site.threads,
            programs=PROGRAMS,
            switch_interval="" if interval_s is None else f"switch-interval={interval_s}",
        )
    )
    words = [APACHE, "-DFOREGROUND", "-f", str(configuration)]
    if os.geteuid() != 0:
        return words
    os.chown(site.folder, pwd.getpwnam(USER).pw_uid, -1)
    return [*AS_USER, *words]


@cache
def module_config(express: Path) -> str:
    """The directives that load mod_wsgi."""
    try:
        asked = subprocess.run(
            [express, "module-config"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchmarkError(f"{express} module-config: {error}") from None
    return asked.stdout


def find_express(python: str, free_threading: bool) -> Path:
    """mod_wsgi-express of an interpreter's environment, else that on PATH, which is for a build
    with a GIL as a rule."""
    beside = Path(python).parent / "mod_wsgi-express"
    on_path = None if free_threading else shutil.which("mod_wsgi-express")
    return Path(on_path) if on_path and not beside.exists() else beside


def missing(python: str, free_threading: bool) -> str:
    """Why mod_wsgi cannot serve with this interpreter, and what to do about it; empty if it can."""
    if not Path(APACHE).exists() or not MODULES.exists():
        return "there is no Apache: install it (apt-get install apache2 apache2-dev)"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "root needs setpriv, to start Apache as another user (apt-get install util-linux)"
    express = find_express(python, free_threading)
    if not express.exists():
        return (
            f"there is neither {express} nor one on PATH that could do: install it "
            f"({python} -m pip install mod_wsgi)"
        )
    version = installed_version(express)
    if version is not None and int(version.split(".")[0]) < LEAST_VERSION:
        return f"{express} is mod_wsgi {version}, and reports from {LEAST_VERSION}.0 on: upgrade it"
    return ""


@cache
def installed_version(express: Path) -> str | None:
    """What the interpreter beside it says; None where there is none to ask."""
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


def free_port() -> int:
    """Apache takes none that it would announce."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
