"""The WSGI servers that are measured side by side: how each is started.

Each peer runs as its own documentation has it for production, access log off, with limits on
connections out of the way. It knows nothing of what is measured, nor of what is installed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from places import PROGRAMS

from headway.bench.processes import DEFAULT_SWITCH_INTERVAL_S

ROOT = Path(__file__).resolve().parent.parent
HEADWAY = "headway"
# More than any benchmark opens.
CONNECTIONS = 20_000
KEEP_ALIVE_S = 600


class Application(NamedTuple):
    folder: Path
    module: str
    callable: str

    def __str__(self) -> str:
        return f"{self.module}:{self.callable}"


APPLICATIONS = {
    "hello": Application(PROGRAMS, "hello", "app"),
    "pages": Application(PROGRAMS, "pages", "app"),
    "flask": Application(ROOT / "tests" / "apps", "flask_site", "app"),
    "django": Application(ROOT / "tests" / "apps", "django_site", "application"),
}


class Server(NamedTuple):
    """A server as one cell runs it. `policy` is Headway's; None is its default. So are
    `interpreters`, each with a GIL of its own; with 0 it serves in the main interpreter. `python`
    runs Headway; None is the one that runs the benchmark. Peers have theirs. `telemetry` is the
    socket that Headway's processes report to."""

    name: str
    processes: int
    threads: int
    policy: str | None = None
    switch_interval_s: float = DEFAULT_SWITCH_INTERVAL_S
    interpreters: int = 0
    free_threading: bool = False
    python: Path | None = None
    telemetry: str | None = None

    @property
    def shape(self) -> str:
        return f"{self.processes}x{self.threads}"

    @property
    def label(self) -> str:
        words = [self.name]
        if self.policy is not None:
            words.append(self.policy)
        if self.switch_interval_s != DEFAULT_SWITCH_INTERVAL_S:
            words.append(f"{self.switch_interval_s * 1e3:g} ms")
        if self.interpreters:
            words.append("own GIL" if self.interpreters == 1 else f"{self.interpreters} own GILs")
        if self.free_threading:
            words.append("free-threaded")
        if self.telemetry is not None:
            words.append("reporting")
        return " ".join(words)

    def parameters(self) -> dict[str, Any]:
        """As a row of the results has them."""
        return {
            "server": self.name,
            "processes": self.processes,
            "threads": self.threads,
            "policy": self.policy,
            "switch_interval": self.switch_interval_s,
            "interpreters": self.interpreters,
            "free_threading": self.free_threading,
            "telemetry": self.telemetry is not None,
        }

    def __str__(self) -> str:
        return f"{self.label} {self.shape}"


class Launch(NamedTuple):
    """One start of a server. `folder` is empty and lasts as long as the server."""

    server: Server
    application: Application
    port: int
    bin: Path
    folder: Path


def bjoern(launch: Launch) -> list[str]:
    return served_from_python(launch)


def fastwsgi(launch: Launch) -> list[str]:
    return served_from_python(launch)


def served_from_python(launch: Launch) -> list[str]:
    """For servers without a command line that could do it."""
    script = str(PROGRAMS / "embedded_server.py")
    words = [str(launch.bin / "python"), script, launch.server.name, str(launch.application)]
    return [*words, str(launch.port), str(launch.server.processes)]


def granian(launch: Launch) -> list[str]:
    words = [str(launch.bin / "granian"), "--interface", "wsgi", "--http", "1", "--no-ws"]
    words += ["--workers", str(launch.server.processes)]
    words += ["--blocking-threads", str(launch.server.threads)]
    words += ["--backpressure", str(CONNECTIONS), "--log-level", "error"]
    return [*words, "--port", str(launch.port), str(launch.application)]


def gunicorn(launch: Launch) -> list[str]:
    words = [str(launch.bin / "gunicorn"), "--worker-class", "gthread", "--no-control-socket"]
    words += ["--workers", str(launch.server.processes), "--threads", str(launch.server.threads)]
    words += ["--keep-alive", str(KEEP_ALIVE_S), "--worker-connections", str(CONNECTIONS)]
    words += ["--graceful-timeout", "1", "--log-level", "error"]
    return [*words, "--bind", f"127.0.0.1:{launch.port}", str(launch.application)]


def waitress(launch: Launch) -> list[str]:
    words = [str(launch.bin / "waitress-serve"), f"--listen=127.0.0.1:{launch.port}"]
    words += [f"--threads={launch.server.threads}", f"--connection-limit={CONNECTIONS}"]
    # select() takes no descriptor from 1024 on.
    words += [f"--channel-timeout={KEEP_ALIVE_S}", "--asyncore-use-poll"]
    return [*words, str(launch.application)]


def uwsgi(launch: Launch) -> list[str]:
    # Does not work: --http11-socket, without the router. It is faster, but a connection that is
    # kept alive keeps a thread, and of 10 connections only as many are served as there are threads.
    words = [str(launch.bin / "uwsgi"), "--master", "--die-on-term", "--disable-logging"]
    words += ["--need-app", "--http", f"127.0.0.1:{launch.port}", "--http-keepalive"]
    words += ["--http-timeout", str(KEEP_ALIVE_S), "--http-events", str(CONNECTIONS)]
    words += ["--max-fd", str(2 * CONNECTIONS), "--enable-threads", "--chdir", str(launch.folder)]
    words += ["--processes", str(launch.server.processes)]
    words += ["--threads", str(launch.server.threads)]
    return [*words, "--module", str(launch.application)]


# Apache's event MPM takes the connections, one daemon process group of mod_wsgi the requests.
HTTPD_CONF = """\
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
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 64
AsyncRequestWorkerFactor 400
KeepAlive On
KeepAliveTimeout {keep_alive_s}
MaxKeepAliveRequests 0
WSGISocketPrefix {folder}/wsgi
WSGIDaemonProcess bench processes={processes} threads={threads} python-path={python_path} \
graceful-timeout=1 shutdown-timeout=1
WSGIProcessGroup bench
WSGIApplicationGroup %{{GLOBAL}}
WSGIScriptAlias / {folder}/application.wsgi
<Directory {folder}>
  Require all granted
</Directory>
"""
APACHE_MODULES = Path("/usr/lib/apache2/modules")
APACHE = shutil.which("apache2") or "/usr/sbin/apache2"
# mod_wsgi serves nothing as root, and another user may not reach an interpreter below /root.
APACHE_USER = "www-data"
AS_APACHE_USER = (
    *("setpriv", f"--reuid={APACHE_USER}", f"--regid={APACHE_USER}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--pdeathsig=TERM"),
)


def mod_wsgi(launch: Launch) -> list[str]:
    express = [str(launch.bin / "mod_wsgi-express"), "module-config"]
    wsgi_module = subprocess.run(express, capture_output=True, text=True, check=True).stdout
    script = f"from {launch.application.module} import {launch.application.callable}"
    (launch.folder / "application.wsgi").write_text(f"{script} as application\n")
    configuration = launch.folder / "httpd.conf"
    configuration.write_text(
        HTTPD_CONF.format(
            folder=launch.folder,
            port=launch.port,
            modules=APACHE_MODULES,
            wsgi_module=wsgi_module,
            keep_alive_s=KEEP_ALIVE_S,
            processes=launch.server.processes,
            threads=launch.server.threads,
            python_path=launch.application.folder,
        )
    )
    words = [APACHE, "-DFOREGROUND", "-f", str(configuration)]
    if os.geteuid() != 0:
        return words
    os.chown(launch.folder, pwd.getpwnam(APACHE_USER).pw_uid, -1)
    return [*AS_APACHE_USER, *words]


def headway(launch: Launch) -> list[str]:
    server = launch.server
    python = str(server.python or sys.executable)
    words = [python, "-m", "headway", "serve", str(launch.application)]
    words += ["--app-dir", str(launch.application.folder), "--bind", f"127.0.0.1:{launch.port}"]
    words += ["--processes", str(server.processes), "--threads", str(server.threads)]
    words += ["--access-log", "off"]
    words += ["--switch-interval", str(server.switch_interval_s)]
    if server.policy is not None:
        words += ["--policy", server.policy]
    if server.telemetry is not None:
        words += ["--telemetry", f"unix:{server.telemetry}"]
    if server.interpreters:
        words += ["--interpreters", str(server.interpreters), "--per-interpreter-gil"]
    # The other servers run in the mode of the Python that starts them.
    here = server.python is None and not getattr(sys, "_is_gil_enabled", lambda: True)()
    if server.free_threading or here:
        words += ["--free-threading"]
    return words


class Peer(NamedTuple):
    """What a server can do; `distribution` is its name on PyPI."""

    distribution: str
    command: Callable[[Launch], list[str]]
    has_threads: bool = True
    has_processes: bool = True


PEERS = {
    "bjoern": Peer("bjoern", bjoern, has_threads=False),
    "fastwsgi": Peer("fastwsgi", fastwsgi, has_threads=False),
    "granian": Peer("granian", granian),
    "uwsgi": Peer("uwsgi", uwsgi),
    "gunicorn": Peer("gunicorn", gunicorn),
    "waitress": Peer("waitress", waitress, has_processes=False),
    "mod_wsgi": Peer("mod_wsgi", mod_wsgi),
}


def command(launch: Launch) -> list[str]:
    start = headway if launch.server.name == HEADWAY else PEERS[launch.server.name].command
    return start(launch)
