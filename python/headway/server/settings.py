"""The resolved settings of a server: the contract between the configuration and the processes.

Flags, a TOML file or an Apache configuration become a `ServerSettings`. The supervisor starts its
process groups, and each worker process receives its `ProcessGroup` as JSON. A setting has the name
of mod_wsgi's WSGIDaemonProcess option where there is one, with the unit added. Pure.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from headway.address import Address, parse_address
from headway.meter.reporter import DEFAULT_INTERVAL_S

# The addresses of a process group. The native part has the same limit (`pool::accept`).
MAX_LISTENERS = 64
# The forms of the access log, and their numbers in the native part.
LOG_FORMS = {"off": 0, "common": 1, "combined": 3, "json": 2}
# The group of a background process has the name of its group with this suffix.
BACKGROUND_SUFFIX = "-background"
# The time that a process gets, beyond its timeouts, to notice that they have passed.
MARGIN_S = 2.0


@dataclass(frozen=True)
class HttpLimits:
    """The limits of a client's requests. Counts and bytes; 0 means no limit for `max_body_bytes`
    alone."""

    max_target_bytes: int = 16_384
    max_head_bytes: int = 65_536
    max_fields: int = 100
    max_body_bytes: int = 0
    # As httpd does: resolve dot segments and `//` in URL paths, and refuse paths above the root,
    # invalid escapes, %2F and %00.
    normalize_path: bool = False
    # Open connections of one worker process; more wait in the listen queue.
    max_connections: int = 65_536
    # The time from the first byte of a request to the end of its head.
    head_timeout_s: float = 30.0
    # The time for the part of a body that is read before the application runs, and for each later
    # wait.
    body_timeout_s: float = 60.0
    # An idle keep-alive connection closes after this time.
    keep_alive_timeout_s: float = 75.0
    # A response fails when the client takes no byte of it for this time.
    write_timeout_s: float = 60.0


# Light requests do not wait for those that compute; measured by bench/server_mixed.py.
DEFAULT_POLICY = "priority"
DEFAULT_HTTP_LIMITS = HttpLimits()
# `headway telemetry` has its site at the same address.
DEFAULT_DASHBOARD = Address("127.0.0.1", 8888)


@dataclass(frozen=True)
class Tls:
    """Files in PEM form, which SIGHUP reads again. `certificate` holds the whole chain. TLS is used
    for TCP connections only, because the clients of UNIX sockets are on the same machine."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Mount:
    """An application and the URL path below which it lives ("" for the root): SCRIPT_NAME."""

    path: str
    # `module:callable`, or the path of a script file whose callable is `application`.
    application: str
    # The name of one of the process group's application groups.
    application_group: str = ""


@dataclass(frozen=True)
class ApplicationGroup:
    """The interpreter, or interpreters, that applications share. The first of the group named "" is
    the process's main interpreter, mod_wsgi's %{GLOBAL}: its GIL is the process's, and it is never
    recycled. All others are sub-interpreters."""

    name: str = ""
    # Each interpreter runs all applications of the group; the threads are divided among them.
    interpreters: int = 1
    # A GIL for each interpreter (PEP 684), from CPython 3.12 on; else they share the process's.
    own_gil: bool = False
    # `None` takes the process group's. Where the GIL is shared and a policy schedules, the interval
    # applies to threads while they serve this group.
    switch_interval_s: float | None = None
    # These directories come before the process group's `python_path` and `app_dir` in sys.path.
    python_path: tuple[str, ...] = ()
    # An interpreter is recycled after this many requests while the process goes on; 0 never.
    maximum_requests: int = 0
    # The interpreter is made at its first request, not at the start.
    on_demand: bool = False
    # As in mod_wsgi: an application's use of these fails or, for signals, is ignored.
    restrict_stdin: bool = False
    restrict_stdout: bool = False
    restrict_signal: bool = False


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that serve the same applications on the same sockets. Times in seconds; 0 turns a
    limit off, as in mod_wsgi; `None` leaves what the process inherits."""

    name: str = "main"
    mounts: tuple[Mount, ...] = ()
    # Each name once; the mounts name these.
    application_groups: tuple[ApplicationGroup, ...] = (ApplicationGroup(),)
    binds: tuple[Address, ...] = (Address("127.0.0.1", 8000),)
    listen_backlog: int = 1024
    # Permission bits of UNIX sockets; `None` applies the umask.
    socket_mode: int | None = None
    # The owner of UNIX sockets; `None` means `user` and `group`, if root opens the sockets.
    socket_user: str | None = None
    socket_group: str | None = None
    tls: Tls | None = None

    processes: int = 1
    # URL paths of pages that a process of its own answers, which has less of a right to the cores.
    # The group of that process has the same paths, and is `is_background`.
    background: tuple[str, ...] = ()
    is_background: bool = False
    # Makes `wsgi.multiprocess` true with one process too: others may serve the same application.
    multiprocess: bool = False
    threads: int = 4
    # `None`: DEFAULT_POLICY where the GIL can be scheduled, else CPython's own.
    policy: str | None = None
    kernel_hints: bool = True
    # Run without a GIL, if this Python can. Otherwise run with one, as with `-X gil=1`.
    free_threading: bool = False
    switch_interval_s: float | None = None

    user: str | None = None
    group: str | None = None
    supplementary_groups: tuple[str, ...] = ()
    umask: int | None = None
    # Working directory of the processes, and HOME.
    home: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    # Variables of each request's environ, like those of Apache's SetEnv.
    environ: dict[str, str] = field(default_factory=dict)
    # These directories come first in sys.path, with those that their .pth files add. `app_dir`
    # comes before them, and its .pth files are not read.
    python_path: tuple[str, ...] = ()
    app_dir: str | None = None
    # A virtual environment, or the prefix of an installation.
    python_home: str | None = None
    display_name: str | None = None
    lang: str | None = None
    stack_size_bytes: int = 0
    cpu_priority: int = 0

    maximum_requests: int = 0
    # A process gets up to this many requests more, at random, so that not all end at once.
    maximum_requests_jitter: int = 0
    restart_interval_s: float = 0.0
    inactivity_timeout_s: float = 0.0
    request_timeout_s: float = 0.0
    interrupt_timeout_s: float = 0.0
    deadlock_timeout_s: float = 300.0
    startup_timeout_s: float = 0.0
    # 0 gives no grace: a process is to end within its shutdown timeout.
    graceful_timeout_s: float = 15.0
    shutdown_timeout_s: float = 5.0
    queue_timeout_s: float = 0.0
    cpu_time_limit_s: float = 0.0
    memory_limit_bytes: int = 0
    virtual_memory_limit_bytes: int = 0

    http: HttpLimits = DEFAULT_HTTP_LIMITS
    # "off", "common", "combined" or "json". The log goes to a file, or to stdout.
    access_log: str = "off"
    access_log_path: str | None = None
    # Networks in CIDR form whose PROXY protocol header, or whose Forwarded and X-Forwarded-*
    # fields, are believed; "unix" stands for every peer of a UNIX socket.
    proxy_protocol_from: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    # The fields that the trusted proxies set: Forwarded, X-Forwarded-For, -Proto, -Host and -Port.
    # Proxies pass the other fields on as clients wrote them, so these are not believed.
    trusted_proxy_headers: tuple[str, ...] = ("X-Forwarded-For", "X-Forwarded-Proto")

    # Load the applications once, in a process from which the workers fork.
    preload: bool = False

    # The group's name in reports; `None` is `name`.
    telemetry_group: str | None = None

    @property
    def grace_s(self) -> float:
        """The time from the end of a process's service until the process is killed; 0 for never."""
        if not self.shutdown_timeout_s:
            return 0.0
        return self.graceful_timeout_s + self.shutdown_timeout_s + MARGIN_S

    def of_background(self) -> ProcessGroup:
        """The group of the process for the background pages."""
        return replace(
            self,
            name=self.name + BACKGROUND_SUFFIX,
            telemetry_group=self.telemetry_group and self.telemetry_group + BACKGROUND_SUFFIX,
            is_background=True,
            processes=1,
        )

    @property
    def reported_name(self) -> str:
        return self.telemetry_group or self.name

    def to_json(self) -> str:
        """One line; `from_json` makes an equal group of it."""
        values = asdict(self)
        values["binds"] = [str(address) for address in self.binds]
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> ProcessGroup:
        values: dict[str, Any] = json.loads(text)
        values["binds"] = [parse_address(bind) for bind in values["binds"]]
        values["mounts"] = [Mount(**mount) for mount in values["mounts"]]
        values["application_groups"] = [
            ApplicationGroup(**each | {"python_path": tuple(each["python_path"])})
            for each in values["application_groups"]
        ]
        values["http"] = HttpLimits(**values["http"])
        values["tls"] = values["tls"] and Tls(**values["tls"])
        for name in (each.name for each in fields(cls)):
            if isinstance(values[name], list):
                values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True)
class Telemetry:
    """The telemetry of the processes and its recorder."""

    # The recorder's UNIX datagram socket.
    path: str
    interval_s: float = DEFAULT_INTERVAL_S
    # Each request that takes longer is reported by itself; 0 reports none.
    slow_requests_s: float = 0.0
    # Report the User-Agent of such requests, too.
    capture_user_agent: bool = False
    # The descriptor that `path` begins with, as /proc/self/fd/N. Processes inherit it.
    fd: int | None = None


@dataclass(frozen=True)
class ServerSettings:
    """The settings of one `headway serve`. Groups have distinct names and share no address."""

    groups: tuple[ProcessGroup, ...]
    # The working directory of the processes; `None` is the server's own.
    directory: str | None = None
    # Restart workers when a file that the application imported changes.
    reload: bool = False
    # A UNIX socket that answers with the status of all processes (`headway status`).
    status_socket: str | None = None
    # The file of the processes' stderr; SIGHUP opens it again by its name.
    error_log: str | None = None
    # Each process prints a table of its requests at its end, even where stderr is no terminal.
    final_table: bool = False
    pid_file: str | None = None
    # The fields of `Telemetry`; without a socket there is no telemetry.
    telemetry: str | None = None
    telemetry_fd: int | None = None
    telemetry_interval_s: float = DEFAULT_INTERVAL_S
    slow_requests_s: float = 0.0
    capture_user_agent: bool = False
    # A recorder beside the workers, with its site at this address.
    dashboard: bool = False
    dashboard_http: Address = DEFAULT_DASHBOARD
    # Its history; None is where `headway telemetry` keeps its own.
    dashboard_store: str | None = None

    @property
    def reporting(self) -> Telemetry | None:
        if self.telemetry is None:
            return None
        return Telemetry(
            self.telemetry,
            self.telemetry_interval_s,
            self.slow_requests_s,
            self.capture_user_agent,
            self.telemetry_fd,
        )
