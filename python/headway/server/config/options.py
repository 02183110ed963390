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
    GroupName,
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
    NOT_SET_BY_SERVER,
    AccessLog,
    Account,
    Checked,
    Several,
    Switch,
    Text,
    parse_application,
    parse_application_group,
    parse_environ_variable,
    parse_forwarding_field,
    parse_mount,
    parse_network,
    parse_page,
    parse_variable,
    show_application_group,
)
from headway.server.settings import (
    DEFAULT_POLICY,
    LOG_FORMS,
    ApplicationGroup,
    ProcessGroup,
    ServerSettings,
)

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
    names, which are made absolute and checked: "directory", "file", or "parent" for a file that is
    made in an existing directory.
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
    "module:callable, such as shop.wsgi:application, module:factory(), or a script file, such as "
    "/srv/shop.wsgi",
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


def _daemon_timeout(name: str, help: str) -> Option:
    """A time limit that WSGIDaemonProcess has too; 0 turns it off. Others are an `Option`."""
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
            "load APP once, in a template process; the processes that serve are forked from it "
            "and share its memory",
        ),
    ),
    "sockets": (
        Option(
            "bind",
            "binds",
            Several(_BIND, None),
            "the address to listen on; port 0 takes a free port, and the log names it; may be "
            "given several times",
        ),
        Option(
            "listen-backlog",
            "listen_backlog",
            Whole(1, 2**31 - 1),
            "how many connections may wait to be accepted (the kernel may lower it)",
            daemon=_COUNT,
            daemon_default=100,
        ),
        Option("socket-mode", "socket_mode", Octal(), "permissions of UNIX sockets"),
        Option(
            "socket-user",
            "socket_user",
            _ACCOUNT,
            "owner of UNIX sockets that root opens, by name or #ID; default: that of --user",
        ),
        Option(
            "socket-group",
            "socket_group",
            _ACCOUNT,
            "group of UNIX sockets that root opens, by name or #ID; default: --group, or that of "
            "--user",
        ),
        Option(
            "tls-certificate",
            "tls.certificate",
            _FILE,
            "PEM file with the whole certificate chain; with --tls-key, serve HTTPS, except on "
            "UNIX sockets",
            path="file",
        ),
        Option("tls-key", "tls.key", _FILE, "PEM file with the private key", path="file"),
    ),
    "processes and threads": (
        Option(
            "processes",
            "processes",
            Whole(1, MAX_PROCESSES),
            "how many processes serve",
            daemon=Whole(1, MAX_PROCESSES),
        ),
        Option(
            "background",
            "background",
            Several(Checked("PATH", "a URL path such as /reports", parse_page), None),
            "a page that computes: requests for PATH, and for what is below it, are answered by a "
            "further process, which gives way to the others; may be given several times",
        ),
        Option(
            "multiprocess",
            "multiprocess",
            Switch(True),
            "set wsgi.multiprocess to true with one process too, because other servers run as well",
        ),
        Option(
            "threads",
            "threads",
            Whole(1, MAX_THREADS),
            f"how many threads of each process run requests, 1 to {MAX_THREADS}",
            daemon=Whole(0, MAX_THREADS),
            daemon_default=15,
        ),
        Option(
            "policy",
            "policy",
            Policy(),
            "the policy that chooses which thread gets the GIL next, and when: see below",
        ),
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
            "stack size of each thread in bytes; 0 leaves it to the system",
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
            "the process name that top and ps -o comm show, cut to 15 bytes; %%{GROUP} stands "
            "for (wsgi:GROUP)",
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
            "run APP in N interpreters of each process, and divide its threads among them; with "
            "--per-interpreter-gil they use several cores",
        ),
        Option(
            "per-interpreter-gil",
            "application_group.own_gil",
            Switch(True),
            "give each sub-interpreter a GIL of its own (CPython 3.12 or later); headway audit "
            "APP shows whether all extension modules allow it",
        ),
        Option(
            "interpreter-maximum-requests",
            "application_group.maximum_requests",
            _COUNT,
            "replace a sub-interpreter, but not its process, after N requests; 0: never",
        ),
        Option(
            "interpreters-on-demand",
            "application_group.on_demand",
            Switch(True),
            "make each sub-interpreter when its first request comes, instead of at the start",
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
        Option(
            "umask",
            "umask",
            Octal(),
            "umask: the permission bits that new files do not get",
            daemon=Octal(),
        ),
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
            Several(
                Checked(
                    "NAME=VALUE",
                    f"NAME=VALUE, for {NOT_SET_BY_SERVER}",
                    parse_environ_variable,
                    "=".join,
                ),
                None,
            ),
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
            "replace a process after about N requests: it goes on until its successor serves; "
            "0: never",
            daemon=_COUNT,
        ),
        Option(
            "maximum-requests-jitter",
            "maximum_requests_jitter",
            _COUNT,
            "add a random number of requests, up to N, to --maximum-requests, so that processes "
            "are not all replaced at once",
        ),
        _daemon_timeout("restart-interval", "replace a process S seconds after its start"),
        _daemon_timeout(
            "inactivity-timeout", "replace a process that had no request for S seconds"
        ),
        _daemon_timeout(
            "request-timeout",
            "replace a process in which a request takes longer than S seconds times (1 + ln T), "
            "where T is --threads, and log the stack of the request",
        ),
        _daemon_timeout(
            "interrupt-timeout",
            "first raise an exception in a request that exceeds --request-timeout, and wait S "
            "seconds for its end",
        ),
        _daemon_timeout(
            "deadlock-timeout",
            "replace a process whose GIL one thread holds for S seconds without a break, while "
            "another thread waits for it",
        ),
        _daemon_timeout(
            "startup-timeout", "kill a process that loads APP for longer than S seconds"
        ),
        _daemon_timeout(
            "graceful-timeout",
            "give the requests of a process that is to end S seconds; 0: as long as "
            "--shutdown-timeout",
        ),
        _daemon_timeout(
            "shutdown-timeout",
            "kill a process that has not ended S seconds after that; 0: never",
        ),
        _daemon_timeout(
            "queue-timeout",
            "answer 504 to a request that waited longer than S seconds for a thread",
        ),
        _daemon_timeout("cpu-time-limit", "replace a process that has used S seconds of CPU time"),
        Option(
            "memory-limit",
            "memory_limit_bytes",
            Bytes(),
            "how many bytes of memory a process may allocate (RLIMIT_DATA)",
            daemon=_DAEMON_BYTES,
        ),
        Option(
            "virtual-memory-limit",
            "virtual_memory_limit_bytes",
            Bytes(),
            "how many bytes of address space a process may have (RLIMIT_AS)",
            daemon=_DAEMON_BYTES,
        ),
    ),
    "what clients are allowed": (
        Option(
            "max-target-size",
            "http.max_target_bytes",
            Bytes(256, 2**20),
            "answer 414 to a request whose target is longer",
        ),
        Option(
            "max-head-size",
            "http.max_head_bytes",
            Bytes(1024, 2**24),
            "answer 431 to a request whose head is longer",
        ),
        Option(
            "max-fields",
            "http.max_fields",
            Whole(1, 10_000),
            "answer 431 to a request with more header fields",
        ),
        Option(
            "max-body-size",
            "http.max_body_bytes",
            Bytes(),
            "answer 413 to a request whose body is longer; 0: no limit",
        ),
        Option(
            "normalize-path",
            "http.normalize_path",
            Switch(True),
            "as Apache does, resolve ., .. and // in URL paths, answer 400 to a path above the "
            "root and to an invalid escape, and 404 to %%2F and %%00",
        ),
        Option(
            "max-connections",
            "http.max_connections",
            Whole(1, 2**20),
            "how many connections a process keeps open; further ones wait to be accepted",
        ),
        _http_timeout(
            "head-timeout",
            "seconds that a client may take to send the head of a request",
        ),
        _http_timeout(
            "body-timeout",
            "seconds for the part of a body that is read before APP runs, and for each later piece",
        ),
        _http_timeout(
            "keep-alive-timeout", "close a kept-alive connection after S seconds without a request"
        ),
        _http_timeout(
            "write-timeout",
            "close a connection whose client takes nothing of the response for S seconds",
        ),
    ),
    "log and proxies": (
        Option(
            "access-log",
            "",
            AccessLog([form for form in LOG_FORMS if form != "off"]),
            "write a line for each request, with its wait for the GIL, in the form common, "
            "combined or json (which has every phase), to stdout or to the end of the file PATH",
        ),
        Option(
            "proxy-protocol-from",
            "proxy_protocol_from",
            _NETWORKS,
            "addresses of proxies that begin a connection with the PROXY protocol; unix stands "
            "for UNIX sockets",
        ),
        Option(
            "trusted-proxies",
            "trusted_proxies",
            _NETWORKS,
            "addresses of proxies whose header fields about the client are believed",
        ),
        Option(
            "trusted-proxy-headers",
            "trusted_proxy_headers",
            PROXY_HEADERS,
            "which of Forwarded, X-Forwarded-For, -Proto, -Host and -Port the trusted proxies "
            "set; applications see no others of these fields",
        ),
    ),
    "telemetry": (
        Option(
            "telemetry",
            "telemetry",
            SocketPath(),
            "report requests, waits for the GIL and CPU time to the recorder at this socket, "
            "which may be started later",
            path="parent",
            of_server=True,
        ),
        Option(
            "telemetry-interval",
            "telemetry_interval_s",
            TELEMETRY_INTERVAL,
            "seconds between two reports of a process",
            of_server=True,
        ),
        Option(
            "telemetry-group",
            "telemetry_group",
            GroupName(),
            "the name of the process group in reports (default: its own)",
        ),
        Option(
            "slow-requests",
            "slow_requests_s",
            _SECONDS,
            "with --telemetry, report each request that takes longer than S seconds; 0: none",
            of_server=True,
        ),
        Option(
            "capture-user-agent",
            "capture_user_agent",
            Switch(True),
            "with --slow-requests, report their User-Agent too",
            of_server=True,
        ),
        Option(
            "dashboard",
            "dashboard",
            Switch(True),
            "start a recorder together with the server, and a dashboard for a browser",
            of_server=True,
        ),
        Option(
            "dashboard-http",
            "dashboard_http",
            ListenAddress(local=True),
            "the address of the dashboard",
            of_server=True,
        ),
        Option(
            "dashboard-store",
            "dashboard_store",
            _FILE,
            "the database of the dashboard's history (default: that of headway telemetry)",
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
            "a UNIX socket for headway status, which shows the processes and why the last one "
            "ended",
            path="parent",
            of_server=True,
        ),
        Option(
            "error-log",
            "error_log",
            _FILE,
            "append the stderr of the server and its processes to this file; SIGHUP opens it anew",
            path="parent",
            of_server=True,
        ),
        Option(
            "final-table",
            "final_table",
            Switch(True),
            "at the end, print the response times and GIL waits of every process, even if stderr "
            "is no terminal",
            of_server=True,
        ),
        Option(
            "pid-file",
            "pid_file",
            _FILE,
            "write the server's process id to this file",
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
