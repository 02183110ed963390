"""The options of `headway serve`: one table for flags, TOML, WSGIDaemonProcess, `--check` and docs.

The table does not depend on files or command lines. Defaults come from `settings`, which documents
what each value means to the processes.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

from headway.options import (
    MAX_SECONDS,
    SWITCH_INTERVAL,
    TELEMETRY_INTERVAL,
    Bytes,
    Kind,
    ListenAddress,
    Octal,
    Policy,
    Seconds,
    SocketPath,
    Whole,
)
from headway.server.config.option_types import (
    FORWARDING_FIELDS,
    AccessLog,
    Account,
    Checked,
    Several,
    Switch,
    Text,
    parse_application,
    parse_application_group,
    parse_forwarding_field,
    parse_mount,
    parse_network,
    parse_variable,
    show_application_group,
)
from headway.server.settings import DEFAULT_POLICY, ApplicationGroup, ProcessGroup, ServerSettings
from headway.server.worker.serving import LOG_FORMS

MAX_THREADS = 1000
MAX_PROCESSES = 1000
# The meter can account for 64 GILs of a process, one of which is the main interpreter's.
MAX_INTERPRETERS = 60


class Option(NamedTuple):
    """`name` is the flag without dashes and the key in TOML.

    `field` is a path in `ProcessGroup`, or in `ServerSettings` for an option `of_server`. In the
    path, `application_group` stands for each application group of the process group. `field` is
    empty if several options make up one field. `daemon` is the kind that WSGIDaemonProcess allows
    under the same name, and `daemon_default` its default if it differs. `path` is set for file
    names, which are made absolute and checked: "directory", "file", or "parent" for a file that
    Headway creates in an existing directory.
    """

    name: str
    field: str
    kind: Kind
    help: str
    daemon: Kind | None = None
    daemon_default: Any = None
    path: str | None = None
    flag: str | None = None
    of_server: bool = False

    def default(self) -> Any:
        """The value of an option that is not configured."""
        if self.name == "access-log":
            return NO_GROUP.access_log, NO_GROUP.access_log_path
        if not self.field or self.field.startswith("tls."):
            return None
        part, _, field = self.field.partition(".")
        if part == "application_group":
            return getattr(NO_APPLICATION_GROUP, field)
        return attrgetter(self.field)(NO_SERVER if self.of_server else NO_GROUP)

    def show(self, value: Any) -> str:
        """`value` in the notation of the configuration; a dash stands for no value."""
        if self.name == "policy" and value is None:
            return DEFAULT_POLICY
        if self.name == "application-group":
            return self.kind.show(value)
        return "-" if value in (None, "", (), {}) else self.kind.show(value)


NO_GROUP = ProcessGroup()
NO_SERVER = ServerSettings(())
NO_APPLICATION_GROUP = ApplicationGroup()

_APPLICATION = Checked(
    "APP",
    "module:callable, such as shop.wsgi:application, or a script file, such as /srv/shop.wsgi",
    parse_application,
)
_BIND = ListenAddress(inherited=True)
_APPLICATION_GROUP = Checked(
    "NAME",
    "a name without % and #, or %{GLOBAL} for the main interpreter",
    parse_application_group,
    show_application_group,
)
_DIRECTORY = Text("DIR", "a directory")
_FILE = Text("FILE", "the name of a file")
_ACCOUNT = Account()
_NETWORKS = Several(
    Checked("CIDR", "a network as 10.0.0.0/8, an address, or unix", parse_network), ","
)
PROXY_HEADERS = Several(
    Checked("FIELD", "one of " + ", ".join(FORWARDING_FIELDS), parse_forwarding_field), ","
)
_SECONDS = Seconds()
_COUNT = Whole(0, 2**31 - 1)
# WSGIDaemonProcess takes whole seconds, and bytes without a unit.
DAEMON_SECONDS = Whole(0, MAX_SECONDS)
DAEMON_SWITCH_INTERVAL = Seconds(1e-6, 1000, units=False)
_DAEMON_BYTES = Whole(0, 2**62)
_ANY_TEXT = Text("TEXT", "some text")


def _timeout(name: str, help: str) -> Option:
    """A time limit that WSGIDaemonProcess has too; 0 turns it off."""
    return Option(name, name.replace("-", "_") + "_s", _SECONDS, help, daemon=DAEMON_SECONDS)


def _http_timeout(name: str, help: str) -> Option:
    field = f"http.{name.replace('-', '_')}_s"
    return Option(name, field, Seconds(0.001), help)


SECTIONS: dict[str, tuple[Option, ...]] = {
    "application": (
        Option(
            "mount",
            "",
            Several(Checked("PATH=APP", "PATH=APP, as /admin=admin.wsgi:app", parse_mount), None),
            "another application, below the URL path PATH; may be given several times",
        ),
        Option(
            "app-dir",
            "",
            _DIRECTORY,
            "look for APP here instead of in --home or the current directory",
            path="directory",
        ),
        Option(
            "python-path",
            "python_path",
            Several(_DIRECTORY, ":"),
            "directories to put before sys.path, after --app-dir, with what their .pth files add",
            daemon=Several(_DIRECTORY, ":"),
            path="directory",
        ),
        Option(
            "python-home",
            "python_home",
            _DIRECTORY,
            "the virtual environment to run in, or the prefix of a Python",
            daemon=_DIRECTORY,
            path="directory",
        ),
        Option(
            "preload",
            "preload",
            Switch(True),
            "load APP once, in a process from which the others fork and share its memory",
        ),
    ),
    "sockets": (
        Option(
            "bind",
            "binds",
            Several(_BIND, None),
            "where to listen; port 0 takes a free one and says which; may be given several times",
        ),
        Option(
            "listen-backlog",
            "listen_backlog",
            Whole(1, 2**31 - 1),
            "connections that may wait to be accepted (the kernel caps it)",
            daemon=_COUNT,
            daemon_default=100,
        ),
        Option("socket-mode", "socket_mode", Octal(), "permissions of UNIX sockets"),
        Option(
            "socket-user",
            "socket_user",
            _ACCOUNT,
            "owner of UNIX sockets, by name or #ID; if root opens them, else that of --user",
        ),
        Option(
            "socket-group",
            "socket_group",
            _ACCOUNT,
            "group of UNIX sockets, likewise; else --group, or that of --user",
        ),
        Option(
            "tls-certificate",
            "tls.certificate",
            _FILE,
            "PEM file with the whole chain; with --tls-key, serve HTTPS, except on UNIX sockets",
            path="file",
        ),
        Option("tls-key", "tls.key", _FILE, "PEM file with the private key", path="file"),
    ),
    "processes and threads": (
        Option(
            "processes",
            "processes",
            Whole(1, MAX_PROCESSES),
            "processes that serve",
            daemon=Whole(1, MAX_PROCESSES),
        ),
        Option(
            "multiprocess",
            "multiprocess",
            Switch(True),
            "make wsgi.multiprocess true with one process too: there are other servers beside it",
        ),
        Option(
            "threads",
            "threads",
            Whole(1, MAX_THREADS),
            f"threads of each process that run requests, 1 to {MAX_THREADS}",
            daemon=Whole(0, MAX_THREADS),
            daemon_default=15,
        ),
        Option("policy", "policy", Policy(), "who gets the GIL next, and when: see below"),
        Option(
            "kernel-hints",
            "kernel_hints",
            Switch(False),
            "do not ask the kernel to run I/O-bound threads sooner when they wake up",
            flag="--no-kernel-hints",
        ),
        Option(
            "free-threading",
            "free_threading",
            Switch(True),
            "run without a GIL, where Python is a free-threaded build",
        ),
        Option(
            "switch-interval",
            "switch_interval_s",
            SWITCH_INTERVAL,
            "sys.setswitchinterval() (CPython's own: 0.005)",
            daemon=DAEMON_SWITCH_INTERVAL,
        ),
        Option(
            "stack-size",
            "stack_size_bytes",
            Bytes(32_768, 2**31, or_zero=True),
            "stack of each thread; 0 leaves it to the system",
            daemon=Whole(32_768, 2**31),
        ),
        Option(
            "cpu-priority",
            "cpu_priority",
            Whole(-20, 19),
            "nice value, -20 to 19",
            daemon=Whole(-20, 19),
        ),
        Option(
            "display-name",
            "display_name",
            _ANY_TEXT,
            "name shown by top and ps -o comm, 15 bytes of it; %%{GROUP} stands for (wsgi:GROUP)",
            daemon=_ANY_TEXT,
        ),
    ),
    "application groups": (
        Option(
            "application-group",
            "application_group.name",
            _APPLICATION_GROUP,
            "run APP and all --mounts in a sub-interpreter of this name, with modules of its own; "
            "%%{GLOBAL} is the main interpreter",
        ),
        Option(
            "interpreters",
            "application_group.interpreters",
            Whole(1, MAX_INTERPRETERS),
            "so many interpreters, each with APP, that divide the threads of a process among them; "
            "on several cores with --per-interpreter-gil",
        ),
        Option(
            "per-interpreter-gil",
            "application_group.own_gil",
            Switch(True),
            "a GIL for each sub-interpreter (CPython 3.12 or later), if all extension modules "
            "allow it: headway audit APP tells",
        ),
        Option(
            "interpreter-maximum-requests",
            "application_group.maximum_requests",
            _COUNT,
            "recycle a sub-interpreter, and not its process, after so many requests; 0 never does",
        ),
        Option(
            "interpreters-on-demand",
            "application_group.on_demand",
            Switch(True),
            "make a sub-interpreter when its first request comes, not at the start",
        ),
    ),
    "what the processes run as": (
        Option("user", "user", _ACCOUNT, "user, by name or #ID", daemon=_ACCOUNT),
        Option("group", "group", _ACCOUNT, "group, by name or #ID", daemon=_ACCOUNT),
        Option(
            "supplementary-groups",
            "supplementary_groups",
            Several(_ACCOUNT, ","),
            "further groups, with commas between them",
            daemon=Several(_ACCOUNT, ","),
        ),
        Option("umask", "umask", Octal(), "permissions that new files do not get", daemon=Octal()),
        Option(
            "home",
            "home",
            _DIRECTORY,
            "working directory, and HOME",
            daemon=Text("DIR", "an absolute path", r"/[^\0\n]*"),
            path="directory",
        ),
        Option(
            "environment",
            "environment",
            Several(Checked("NAME=VALUE", "NAME=VALUE", parse_variable, "=".join), None),
            "set an environment variable; may be given several times",
            flag="--env",
        ),
        Option(
            "environ",
            "environ",
            Several(Checked("NAME=VALUE", "NAME=VALUE", parse_variable, "=".join), None),
            "put a variable into the environ of each request, as Apache's SetEnv does; "
            "may be given several times",
        ),
        Option("lang", "lang", _ANY_TEXT, "locale: the variable LANG", daemon=_ANY_TEXT),
    ),
    "when a process is replaced or ended": (
        Option(
            "maximum-requests",
            "maximum_requests",
            _COUNT,
            "replace a process after so many requests; 0 never does",
            daemon=_COUNT,
        ),
        Option(
            "maximum-requests-jitter",
            "maximum_requests_jitter",
            _COUNT,
            "up to so many requests more, at random, so that not all end at once",
        ),
        _timeout("restart-interval", "replace a process that has run so long"),
        _timeout("inactivity-timeout", "replace a process that had nothing to do so long"),
        _timeout(
            "request-timeout",
            "replace a process in which a request takes longer, and log where it is",
        ),
        _timeout(
            "interrupt-timeout",
            "raise an exception in a request beyond --request-timeout first, and wait so long",
        ),
        _timeout("deadlock-timeout", "replace a process whose GIL is held so long at a stretch"),
        _timeout("startup-timeout", "how long loading APP may take"),
        _timeout(
            "graceful-timeout",
            "how long requests may take once a process is to end; 0: as long as --shutdown-timeout",
        ),
        _timeout(
            "shutdown-timeout",
            "how long it may take after that, before it is killed; 0 never does",
        ),
        _timeout("queue-timeout", "answer 504 to a request that waited longer for a thread"),
        _timeout("cpu-time-limit", "replace a process that used so much CPU time"),
        Option(
            "memory-limit",
            "memory_limit_bytes",
            Bytes(),
            "bytes of memory a process may allocate (RLIMIT_DATA)",
            daemon=_DAEMON_BYTES,
        ),
        Option(
            "virtual-memory-limit",
            "virtual_memory_limit_bytes",
            Bytes(),
            "bytes of address space a process may have (RLIMIT_AS)",
            daemon=_DAEMON_BYTES,
        ),
    ),
    "what clients are allowed": (
        Option(
            "max-target-size",
            "http.max_target_bytes",
            Bytes(256, 2**20),
            "bytes of a request's target, or 414",
        ),
        Option(
            "max-head-size",
            "http.max_head_bytes",
            Bytes(1024, 2**24),
            "bytes of a request's head, or 431",
        ),
        Option(
            "max-fields",
            "http.max_fields",
            Whole(1, 10_000),
            "header fields of a request, or 431",
        ),
        Option(
            "max-body-size",
            "http.max_body_bytes",
            Bytes(),
            "bytes of a request's body, or 413; 0 sets no limit",
        ),
        Option(
            "max-connections",
            "http.max_connections",
            Whole(1, 2**20),
            "open connections of a process; more wait to be accepted",
        ),
        _http_timeout("head-timeout", "for the head of a request"),
        _http_timeout(
            "body-timeout",
            "for what is read of the body before APP runs, and for each piece after that",
        ),
        _http_timeout("keep-alive-timeout", "without a request on a connection that is kept open"),
        _http_timeout("write-timeout", "without taking anything of the response"),
    ),
    "log and proxies": (
        Option(
            "access-log",
            "",
            AccessLog([form for form in LOG_FORMS if form != "off"]),
            "a line per request with its gil_wait_time, as common, combined or json, which has "
            "every phase; to stdout, or appended to the file PATH",
        ),
        Option(
            "proxy-protocol-from",
            "proxy_protocol_from",
            _NETWORKS,
            "peers that begin a connection with the PROXY protocol; unix: those of UNIX sockets",
        ),
        Option(
            "trusted-proxies",
            "trusted_proxies",
            _NETWORKS,
            "peers whose fields about a request's origin are believed",
        ),
        Option(
            "trusted-proxy-headers",
            "trusted_proxy_headers",
            PROXY_HEADERS,
            "which of Forwarded, X-Forwarded-For, -Proto, -Host and -Port they set; applications "
            "see no others of these",
        ),
    ),
    "telemetry": (
        Option(
            "telemetry",
            "telemetry",
            SocketPath(),
            "report to the recorder that listens there, or will: requests, waits for the GIL, CPU",
            path="parent",
            of_server=True,
        ),
        Option(
            "telemetry-interval",
            "telemetry_interval_s",
            TELEMETRY_INTERVAL,
            "how often each process reports",
            of_server=True,
        ),
        Option(
            "slow-requests",
            "slow_requests_s",
            _SECONDS,
            "with --telemetry, tell of each request that takes longer; 0 tells of none",
            of_server=True,
        ),
        Option(
            "capture-user-agent",
            "capture_user_agent",
            Switch(True),
            "with --slow-requests, tell their User-Agent, too",
            of_server=True,
        ),
        Option(
            "dashboard",
            "dashboard",
            Switch(True),
            "start a recorder beside the server, which shows in a browser what it records",
            of_server=True,
        ),
        Option(
            "dashboard-http",
            "dashboard_http",
            ListenAddress(local=True),
            "where the dashboard is",
            of_server=True,
        ),
        Option(
            "dashboard-store",
            "dashboard_store",
            _FILE,
            "the database that the dashboard's history is kept in, instead of the recorder's usual",
            path="parent",
            of_server=True,
        ),
    ),
    "server": (
        Option(
            "reload",
            "reload",
            Switch(True),
            "for developers: restart when a file that APP imported changes",
            of_server=True,
        ),
        Option(
            "status-socket",
            "status_socket",
            _FILE,
            "a UNIX socket that tells who is alive and why the last one died",
            path="parent",
            of_server=True,
        ),
        Option(
            "error-log",
            "error_log",
            _FILE,
            "append stderr to this file, the server's and that of its processes; SIGHUP opens it "
            "anew",
            path="parent",
            of_server=True,
        ),
        Option(
            "final-table",
            "final_table",
            Switch(True),
            "show at the end how long requests took and waited, for each of several processes, "
            "where stderr is no terminal, too",
            of_server=True,
        ),
        Option(
            "pid-file",
            "pid_file",
            _FILE,
            "a file for the server's process id",
            path="parent",
            of_server=True,
        ),
    ),
}

# Positional on the command line, so it belongs to no section.
APP = Option("app", "", _APPLICATION, "the application to serve")
OPTIONS: dict[str, Option] = {
    option.name: option for option in (APP, *(row for rows in SECTIONS.values() for row in rows))
}
GROUP_OPTIONS = {name: option for name, option in OPTIONS.items() if not option.of_server}
SERVER_OPTIONS = {name: option for name, option in OPTIONS.items() if option.of_server}
