"""The WSGI servers that are measured side by side: how each is started.

Each peer runs as its own documentation recommends for production, with the access log off and with
connection limits that no benchmark reaches. This module knows neither what is measured nor what is
installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from places import PROGRAMS

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway_lab.measured import apache

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "examples" / "site"
HEADWAY = "headway"
# The cost of serving that the kernel alone causes: programs/answers.c.
FLOOR = "floor"
# For bench/site_servers.py alone: no threads, and no WSGI.
GUNICORN_SYNC = "gunicorn sync"
UVICORN = "uvicorn"
# More connections than any benchmark opens.
CONNECTIONS = 20_000
KEEP_ALIVE_S = 600


class Application(NamedTuple):
    """`static` has files for the URLs below /static/, which servers that can do so serve
    themselves."""

    folder: Path
    module: str
    callable: str
    static: Path | None = None

    def __str__(self) -> str:
        return f"{self.module}:{self.callable}"


APPLICATIONS = {
    "hello": Application(PROGRAMS, "hello", "app"),
    "pages": Application(PROGRAMS, "pages", "app"),
    "bodies": Application(PROGRAMS, "bodies", "app"),
    "flask": Application(ROOT / "tests" / "apps", "flask_site", "app"),
    "django": Application(ROOT / "tests" / "apps", "django_site", "application"),
    "bookshop": Application(SITE, "bookshop.wsgi", "application", SITE / "bookshop" / "static"),
    "bookshop_fastapi": Application(SITE, "bookshop_fastapi", "app"),
}


class Server(NamedTuple):
    """A server as one cell runs it. The policy None is Headway's default; gunicorn and uvicorn run
    under a policy as guests, and without one as they are. `interpreters` apply to Headway alone,
    each with a GIL of its own; 0 mean that it serves in the main one. `python` runs Headway; None
    is the Python that runs the benchmark. Peers have their own. `telemetry` is the socket that
    Headway's processes report to. With `preload` the application is loaded before the processes are
    forked. `background` are URL paths that a process of its own answers, which has less of a right
    to the cores, where the server can do that."""

    name: str
    processes: int
    threads: int
    policy: str | None = None
    switch_interval_s: float = DEFAULT_SWITCH_INTERVAL_S
    interpreters: int = 0
    free_threading: bool = False
    python: Path | None = None
    telemetry: str | None = None
    preload: bool = False
    background: tuple[str, ...] = ()

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
        if self.preload:
            words.append("preloaded")
        if self.background:
            words.append("background")
        return " ".join(words)

    def parameters(self) -> dict[str, Any]:
        """The server's parameters in a row of the results."""
        return {
            "server": self.name,
            "processes": self.processes,
            "threads": self.threads,
            "policy": self.policy,
            "switch_interval": self.switch_interval_s,
            "interpreters": self.interpreters,
            "free_threading": self.free_threading,
            "telemetry": self.telemetry is not None,
            "preload": self.preload,
            "background": list(self.background),
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
    """The command for servers whose own command line cannot do this."""
    script = str(PROGRAMS / "embedded_server.py")
    words = [str(launch.bin / "python"), script, launch.server.name, str(launch.application)]
    return [*words, str(launch.port), str(launch.server.processes)]


def granian(launch: Launch) -> list[str]:
    words = [str(launch.bin / "granian"), "--interface", "wsgi", "--http", "1", "--no-ws"]
    words += ["--workers", str(launch.server.processes)]
    words += ["--blocking-threads", str(launch.server.threads)]
    words += ["--backpressure", str(CONNECTIONS), "--log-level", "error"]
    if launch.application.static is not None:
        words += ["--static-path-route", "/static"]
        words += ["--static-path-mount", str(launch.application.static)]
    return [*words, "--port", str(launch.port), str(launch.application)]


def gunicorn(launch: Launch) -> list[str]:
    threads = ["--worker-class", "gthread", "--threads", str(launch.server.threads)]
    return gunicorn_with(threads, launch)


def gunicorn_sync(launch: Launch) -> list[str]:
    return gunicorn_with(["--worker-class", "sync"], launch)


def gunicorn_with(worker: Sequence[str], launch: Launch) -> list[str]:
    policy = launch.server.policy
    program = [str(launch.bin / "gunicorn")] if policy is None else guest(launch, "gunicorn")
    words = [*program, *worker, "--no-control-socket"]
    words += ["--workers", str(launch.server.processes)]
    if launch.server.preload:
        words += ["--preload"]
    words += ["--keep-alive", str(KEEP_ALIVE_S), "--worker-connections", str(CONNECTIONS)]
    words += ["--graceful-timeout", "1", "--log-level", "error"]
    return [*words, "--bind", f"127.0.0.1:{launch.port}", str(launch.application)]


def waitress(launch: Launch) -> list[str]:
    words = [str(launch.bin / "waitress-serve"), f"--listen=127.0.0.1:{launch.port}"]
    words += [f"--threads={launch.server.threads}", f"--connection-limit={CONNECTIONS}"]
    # select() accepts no descriptor above 1023.
    words += [f"--channel-timeout={KEEP_ALIVE_S}", "--asyncore-use-poll"]
    return [*words, str(launch.application)]


def uwsgi(launch: Launch) -> list[str]:
    # --http11-socket without the router does not work here. It is faster, but each kept-alive
    # connection occupies a thread, so no more connections are served than there are threads.
    words = [str(launch.bin / "uwsgi"), "--master", "--die-on-term", "--disable-logging"]
    words += ["--need-app", "--http", f"127.0.0.1:{launch.port}", "--http-keepalive"]
    words += ["--http-timeout", str(KEEP_ALIVE_S), "--http-events", str(CONNECTIONS)]
    words += ["--max-fd", str(2 * CONNECTIONS), "--enable-threads", "--chdir", str(launch.folder)]
    words += ["--processes", str(launch.server.processes)]
    words += ["--threads", str(launch.server.threads)]
    if launch.application.static is not None:
        words += ["--static-map", f"/static={launch.application.static}"]
    return [*words, "--module", str(launch.application)]


WSGI_DIRECTIVES = (
    apache.TO_STDERR
    + """\
AsyncRequestWorkerFactor 400
KeepAliveTimeout {keep_alive_s}
WSGIDaemonProcess bench processes={processes} threads={threads} python-path={python_path} \
home={home} graceful-timeout=1 shutdown-timeout=1
WSGIProcessGroup bench
WSGIApplicationGroup %{{GLOBAL}}
"""
)
BACKGROUND_DIRECTIVES = """\
WSGIDaemonProcess background processes=1 threads={threads} python-path={python_path} \
home={home} graceful-timeout=1 shutdown-timeout=1 cpu-priority=10
"""
BACKGROUND_LOCATION = """\
<Location {path}>
  WSGIProcessGroup background
</Location>
"""
STATIC_DIRECTIVES = """\
LoadModule alias_module {modules}/mod_alias.so
Alias /static/ {folder}/
<Directory {folder}>
  Require all granted
</Directory>
"""


def mod_wsgi(launch: Launch) -> list[str]:
    named = launch.application
    directives = WSGI_DIRECTIVES.format(
        keep_alive_s=KEEP_ALIVE_S,
        processes=launch.server.processes,
        threads=launch.server.threads,
        python_path=named.folder,
        home=launch.folder,
    )
    if launch.server.background:
        directives += BACKGROUND_DIRECTIVES.format(
            threads=launch.server.threads, python_path=named.folder, home=launch.folder
        )
        directives += "".join(
            BACKGROUND_LOCATION.format(path=path) for path in launch.server.background
        )
    if named.static is not None:
        directives += STATIC_DIRECTIVES.format(modules=apache.MODULES, folder=named.static)
    script = f"from {named.module} import {named.callable} as application\n"
    express = launch.bin / "mod_wsgi-express"
    return apache.command(launch.folder, launch.port, express, script, directives)


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
    if server.preload:
        words += ["--preload"]
    for path in server.background:
        words += ["--background", path]
    if server.telemetry is not None:
        words += ["--telemetry", f"unix:{server.telemetry}"]
    if server.interpreters:
        words += ["--interpreters", str(server.interpreters), "--per-interpreter-gil"]
    # The other servers run in the mode of the Python that starts them.
    here = server.python is None and not getattr(sys, "_is_gil_enabled", lambda: True)()
    if server.free_threading or here:
        words += ["--free-threading"]
    return words


def guest(launch: Launch, module: str) -> list[str]:
    """A server in Headway's environment, under a policy if there is one."""
    policy = launch.server.policy
    variable = [] if policy is None else [f"HEADWAY=policy={policy}"]
    return ["env", *variable, str(launch.server.python or sys.executable), "-m", module]


def uvicorn(launch: Launch) -> list[str]:
    words = guest(launch, "uvicorn")
    words += ["--workers", str(launch.server.processes), "--no-access-log"]
    words += ["--log-level", "error", "--timeout-keep-alive", str(KEEP_ALIVE_S)]
    return [*words, "--port", str(launch.port), str(launch.application)]


def floor(launch: Launch) -> list[str]:
    build_and_run = 'cc -O2 -o "$1/answers" "$2" && exec "$1/answers" "$3"'
    source = PROGRAMS / "answers.c"
    return ["sh", "-c", build_and_run, "sh", str(launch.folder), str(source), str(launch.port)]


class Peer(NamedTuple):
    """How to start a server, and what it supports; `distribution` is its name on PyPI."""

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
    """The command line of a peer, of Headway or of the floor."""
    ours = {HEADWAY: headway, FLOOR: floor, GUNICORN_SYNC: gunicorn_sync, UVICORN: uvicorn}
    start = ours.get(launch.server.name) or PEERS[launch.server.name].command
    return start(launch)
