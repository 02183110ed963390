"""`headway serve --check`: shows the resolved configuration with the origin of each value, and
finds what is missing or unusable on this machine.

Starts and changes nothing, and imports no application; for groups without a GIL, `import_check`
does that.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

from headway import _native
from headway.address import Address
from headway.errors import reason_of
from headway.options import MAX_SOCKET_PATH_BYTES, fits_socket
from headway.server import identity
from headway.server.config.application_group_options import INTERPRETER_OPTIONS
from headway.server.config.configuration import TABLES, Value, is_object
from headway.server.config.options import OPTIONS, Option
from headway.server.config.resolution import Resolution, ResolvedGroup

# Files that the server makes anew, whatever is there.
MADE_ANEW = ("status-socket", "dashboard-store")
# The recorder may make its socket later, as another user.
MADE_BY_OTHERS = ("telemetry",)
NAME_WIDTH = 26
VALUE_WIDTH = 34


def draw(resolution: Resolution) -> str:
    """Text with one line for each value and its origin."""
    lines = ["[server]"]
    lines += [_line(name, value) for name, value in resolution.server.items()]
    for group in resolution.groups:
        lines += ["", f"[process-group.{group.settings.name}]".ljust(61) + f"  {group.place}"]
        for mount in group.mounts:
            name = f"mount {mount.path}" if mount.path else "app"
            lines.append(_row(name, mount.application, mount.origin))
            lines.append(_line("application-group", mount.application_group, indent="  "))
        lines += [_row("bind", str(bind.value), bind.origin) for bind in group.binds]
        for name, value in group.values.items():
            lines += _table(name, value) if name in TABLES else [_line(name, value)]
        for each in group.application_groups:
            table = f"[process-group.{group.settings.name}.application-groups.{_key(each.shown)}]"
            lines += ["", table.ljust(61) + f"  {each.place}"]
            lines += [
                _row(name, INTERPRETER_OPTIONS[name].show(value.value), value.origin)
                for name, value in each.values.items()
            ]
    return "\n".join(lines) + "\n"


def _line(name: str, value: Value, indent: str = "") -> str:
    return _row(indent + name, OPTIONS[name].show(value.value), value.origin)


def _table(name: str, value: Value) -> list[str]:
    """One line for each variable, or one line if there is none."""
    variables = value.value.items()
    rows = [_row(f"{name} {key}", each.value, each.origin) for key, each in variables]
    return rows or [_line(name, value)]


def _key(name: str) -> str:
    """The name as a TOML key, quoted if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _row(name: str, shown: str, origin: str) -> str:
    return f"  {name:{NAME_WIDTH}} {shown:{VALUE_WIDTH}} {origin}"


def problems(resolution: Resolution) -> list[str]:
    """One line for each value that this machine lacks or cannot use."""
    found = [
        _problem(value, name, problem)
        for name, value in resolution.server.items()
        for problem in _missing(OPTIONS[name], value.value)
    ]
    for group in resolution.groups:
        found.extend(_problems_of_group(group))
    return found


def _problems_of_group(group: ResolvedGroup) -> Iterator[str]:
    for mount in group.mounts:
        application = mount.application
        if not is_object(application) and not os.path.isfile(application):
            of_mount = Value(application, mount.origin)
            yield _problem(of_mount, "app", f"found {application}; it must be a file that exists")
    for bind in group.binds:
        for problem in _unusable(bind.value):
            yield _problem(bind, "bind", problem)
    for name, value in group.values.items():
        for problem in _missing(OPTIONS[name], value.value):
            yield _problem(value, name, problem)
    for each in group.application_groups:
        for name, value in each.values.items():
            for problem in _missing(INTERPRETER_OPTIONS[name], value.value):
                yield _problem(value, name, problem)
    yield from _accounts(group)
    yield from _limits(group)
    if group.settings.tls is not None:
        yield from _certificate(group)


def _missing(option: Option, value: Any) -> Iterator[str]:
    """The problems with the files and directories that one option names."""
    if not value:
        return
    if option.name == "access-log":
        path = value[1]
        if path is not None and not os.path.isdir(os.path.dirname(path)):
            yield f"{path}: no such file or directory"
        elif path is not None and (problem := _unwritable(path)):
            yield f"found {path}; {problem}"
    for path in value if isinstance(value, tuple) else (value,):
        if option.path == "directory" and not os.path.isdir(path):
            yield f"found {path}; it must be a directory that exists"
        if option.name == "telemetry" and not fits_socket(path):
            yield f"found {path}; it must have at most {MAX_SOCKET_PATH_BYTES} bytes"
        if option.path == "parent" and not os.path.isdir(os.path.dirname(path)):
            yield f"found {path}; its directory must exist"
        elif (
            option.path == "parent"
            and option.name not in MADE_BY_OTHERS
            and (problem := _unwritable(path, is_new=option.name in MADE_ANEW))
        ):
            yield f"found {path}; {problem}"


def _unwritable(path: str, *, is_new: bool = False) -> str:
    """The problem with a file that the server writes in a directory that exists; "" if there is
    none. The server makes the file if it `is_new`, or does not exist."""
    folder = os.path.dirname(path) if is_new or not os.path.exists(path) else ""
    if folder and not os.access(folder, os.W_OK | os.X_OK):
        return "this user cannot write to its directory"
    if not folder and (os.path.isdir(path) or not os.access(path, os.W_OK)):
        return "it must be a file that this user can write to"
    return ""


def _unusable(address: Address) -> Iterator[str]:
    if address.path is not None:
        if not os.path.isdir(os.path.dirname(os.path.abspath(address.path))):
            yield f"{address}: no such file or directory"
        return
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield f"{address}: {reason_of(error)}"


def _accounts(group: ResolvedGroup) -> Iterator[str]:
    values = group.values
    for option in ("user", "group", "socket-user", "socket-group"):
        if values[option].value is not None:
            yield from _account(values[option], option, values[option].value)
    for name in values["supplementary-groups"].value:
        yield from _account(values["supplementary-groups"], "supplementary-groups", name)


def _account(value: Value, option: str, name: str) -> Iterator[str]:
    kind = "user" if option.endswith("user") else "group"
    try:
        number = account_id(kind, name)
    except KeyError:
        yield _problem(value, option, f"found {name}; it must be a {kind} of this machine")
        return
    if option == "supplementary-groups":
        # setgroups(2) is refused to others even for the groups that they have.
        own, does = set[int](), "give processes further groups"
    elif option.startswith("socket-"):
        own = {os.geteuid()} if kind == "user" else {os.getegid(), *os.getgroups()}
        does = f"give sockets to another {kind}"
    else:
        # setgid(2) is refused to others for a supplementary group.
        own = set(os.getresuid() if kind == "user" else os.getresgid())
        does = f"run processes as another {kind}"
    if number not in own and not identity.may_become(kind):
        yield _problem(value, option, f"found {name}; only root can {does}")


def _limits(group: ResolvedGroup) -> Iterator[str]:
    """The limits that this process cannot set."""
    for name, found, most in identity.find_forbidden_limits(group.settings):
        yield _problem(group.values[name], name, f"found {found}; without root it must be {most}")


def account_id(kind: str, name: str) -> int:
    """The number of a user or group. Raises `KeyError` if it does not exist."""
    return identity.find_user(name).pw_uid if kind == "user" else identity.find_group(name)


def _certificate(group: ResolvedGroup) -> Iterator[str]:
    tls = group.settings.tls
    if tls is None:
        return
    try:
        _native.server_read_tls(tls.certificate, tls.key)
    except ValueError as error:
        is_of_key = tls.key != tls.certificate and str(error).startswith(tls.key)
        name = "tls-key" if is_of_key else "tls-certificate"
        yield _problem(group.values[name], name, str(error))


def _problem(value: Value, name: str, text: str) -> str:
    """One line about a value. If the origin is a line in a file, the option's name is added."""
    is_flag = value.origin.startswith("--")
    return f"{value.origin}: {text}" if is_flag else f"{value.origin}: {name}: {text}"
