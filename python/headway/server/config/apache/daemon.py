"""WSGIDaemonProcess: one process group of mod_wsgi, its options and its defaults.

The ranges are those of mod_wsgi 6, read strictly: mod_wsgi reads "5x" as 5, and accepts `nan` as a
switch interval. `NOT_HAD` and `REFUSED` have mod_wsgi's options that Headway lacks, each with the
reason for users.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field
from typing import Any

from headway.options import Kind, Whole
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value, cut, table
from headway.server.config.option_types import Switch, Text
from headway.server.config.options import DAEMON_SECONDS, GROUP_OPTIONS

ORIGIN_OF_DEFAULTS = "mod_wsgi's default"
_COUNT = Whole(0, 2**31 - 1)
_TEXT = Text("TEXT", "some text")

# Options that have another name in Headway, with the option that each sets.
RENAMED: dict[str, tuple[str, Kind]] = {
    "response-socket-timeout": ("write-timeout", DAEMON_SECONDS),
    "socket-timeout": ("write-timeout", DAEMON_SECONDS),
    "locale": ("environment", _TEXT),
}
_NO_PROXY = "no process stands between the client and the application"
# Checked, warned about, and without effect.
NOT_HAD: dict[str, tuple[Kind, str]] = {
    "python-eggs": (
        Text("DIR", "a directory"),
        "Python no longer has eggs; set PYTHON_EGG_CACHE with env",
    ),
    "eviction-timeout": (DAEMON_SECONDS, "graceful-timeout is for every replacement"),
    "connect-timeout": (DAEMON_SECONDS, _NO_PROXY),
    "socket-user": (_TEXT, _NO_PROXY),
    "receive-buffer-size": (Whole(512, 2**31 - 1), _NO_PROXY),
    "send-buffer-size": (Whole(512, 2**31 - 1), _NO_PROXY),
    "header-buffer-size": (Whole(8192, 2**31 - 1), "a response's head may be of any size"),
    "response-buffer-size": (Whole(65_536, 2**31 - 1), _NO_PROXY),
    "response-flush-delay": (_COUNT, "every piece that the application yields is sent at once"),
    "server-metrics": (Switch(True), "there is no scoreboard of Apache's to read"),
}
ZERO_ALLOWED = {
    "receive-buffer-size",
    "send-buffer-size",
    "header-buffer-size",
    "response-buffer-size",
}
# Without these options, applications would have more rights than the configuration gives them.
REFUSED = {
    "chroot": "a container, or RootDirectory= of systemd",
    "script-user": "permissions of the directories that scripts lie in",
    "script-group": "permissions of the directories that scripts lie in",
}


@dataclass
class Daemon:
    """A process group that was declared. `server_name` is that of its virtual host."""

    name: str
    directive: Directive
    server_name: str | None
    is_virtual: bool
    given: dict[str, Value] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_daemon(directive: Directive, server_name: str | None, is_virtual: bool) -> Daemon:
    """The options of the directive; raises `CommandError` for any that mod_wsgi would not take."""
    if not directive.words or "=" in directive.words[0]:
        raise directive.refuse(cut(directive.text) or "nothing", "NAME option=value ...")
    daemon = Daemon(directive.words[0], directive, server_name, is_virtual)
    for name, text in directive.options(1):
        _take(daemon, name, text)
    if os.geteuid() != 0:
        _leave_accounts(daemon)
    return daemon


def _take(daemon: Daemon, name: str, text: str) -> None:
    directive = daemon.directive
    if name in REFUSED:
        raise directive.refuse(f"{name}={text}", f"not here; instead: {REFUSED[name]}")
    if name in NOT_HAD:
        kind, reason = NOT_HAD[name]
        if not (name in ZERO_ALLOWED and text == "0"):
            parse(directive, name, kind, text)
        daemon.warnings.append(f"{directive.place}: {name} has no effect: {reason}")
        return
    if name in RENAMED:
        target, kind = RENAMED[name]
        value = parse(directive, name, kind, text)
        # 0 leaves the timeout to the directive Timeout. response-socket-timeout takes precedence
        # over socket-timeout.
        if name == "locale":
            daemon.given[target] = table([("LC_ALL", value)], directive.place)
        elif value and (target not in daemon.given or name == "response-socket-timeout"):
            daemon.given[target] = Value(float(value), directive.place)
        return
    option = GROUP_OPTIONS.get(name)
    if option is None or option.daemon is None:
        raise directive.refuse(f"the unknown option {name}", ", ".join(known_options()))
    value = parse(directive, name, option.daemon, text)
    if name == "user" and is_root(value):
        raise directive.refuse(f"user={text}", "a user other than root")
    if name == "processes":
        # In mod_wsgi the mere presence of the option makes wsgi.multiprocess true.
        daemon.given["multiprocess"] = Value(True, directive.place)
    is_time = option.field.endswith("_s")
    daemon.given[name] = Value(float(value) if is_time else value, directive.place)


def parse(directive: Directive, name: str, kind: Kind, text: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError:
        raise directive.refuse(f"{name}={text}", kind.allowed) from None


def known_options() -> list[str]:
    """The names of all options of mod_wsgi, including those that Headway lacks."""
    taken = [name for name, option in GROUP_OPTIONS.items() if option.daemon is not None]
    return sorted([*taken, *RENAMED, *NOT_HAD, *REFUSED])


def is_root(user: object) -> bool:
    return user in ("root", "#0")


def _leave_accounts(daemon: Daemon) -> None:
    """Ignores users and groups, as mod_wsgi does if Apache was not started by root."""
    for name in ("user", "group", "supplementary-groups"):
        if name in daemon.given:
            del daemon.given[name]
            daemon.warnings.append(
                f"{daemon.directive.place}: {name} of process group {daemon.name} is left out: "
                "only root can run processes as another"
            )


def defaults() -> dict[str, Value]:
    """mod_wsgi's defaults, where Headway's differ."""
    return {
        name: Value(option.daemon_default, ORIGIN_OF_DEFAULTS)
        for name, option in GROUP_OPTIONS.items()
        if option.daemon_default is not None
    }


def home_of(user: str) -> str | None:
    """The user's home directory, in which a daemon's processes start unless `home=` gives another
    one; `None` if the user has none, such as `nobody`."""
    try:
        entry = pwd.getpwuid(int(user[1:])) if user.startswith("#") else pwd.getpwnam(user)
    except KeyError:
        return None
    return entry.pw_dir if os.path.isdir(entry.pw_dir) else None
