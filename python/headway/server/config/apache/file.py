"""Reads an Apache configuration with mod_wsgi's directives as a draft of a server's settings.

Each WSGIDaemonProcess with an alias becomes a process group. Apache's embedded mode becomes the
group `default`, which serves the aliases without a WSGIDaemonProcess.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from headway.errors import CommandError
from headway.server import free_threading
from headway.server.config.apache import core
from headway.server.config.apache.body_limit import read_body_limit
from headway.server.config.apache.contents import Contents, read_contents
from headway.server.config.apache.daemon import Daemon, defaults, home_of
from headway.server.config.apache.groups import Group, find_groups
from headway.server.config.apache.hosts import Host
from headway.server.config.apache.interpreters import parse_word
from headway.server.config.apache.other_directives import INSTEAD
from headway.server.config.apache.request_variables import read_variables
from headway.server.config.apache.syntax import Directive, list_by_name, places
from headway.server.config.apache.telemetry import read_telemetry
from headway.server.config.apache.unenforced import check_unenforced
from headway.server.config.apache.warnings import remarks
from headway.server.config.configuration import (
    ApplicationGroupDraft,
    Draft,
    GroupDraft,
    Value,
    mount,
)
from headway.server.config.files import ConfigurationFiles
from headway.server.config.option_types import Several
from headway.server.config.options import OPTIONS
from headway.server.config.resolution import gil_enabled

INHERITED = "inherited from server scope"
# Options by which requests are refused, so that a host without one must not get another's.
_LIMITS = {"max-target-size", "max-fields", "max-head-size"}


def read_apache(
    path: str,
    files: ConfigurationFiles | None = None,
    accepted: Sequence[str] = (),
    *,
    has_bind: bool = False,
) -> Draft:
    """The draft of the file and its includes. `accepted` names the directives that need not be
    enforced. With `has_bind`, other addresses take the place of the file's. Raises `CommandError`
    with exit code 2."""
    contents = read_contents(path, files or ConfigurationFiles())
    telemetry = read_telemetry(contents.main.directives)
    groups = find_groups(contents, has_bind)
    if not groups:
        raise _refuse_nothing(contents)
    unenforced = list(check_unenforced(contents, groups, accepted))
    draft = Draft([_group_draft(contents, group) for group in groups])
    draft.server |= telemetry
    said = (*unenforced, *contents.warnings, *remarks(contents, groups, draft))
    # A host is read once for each of its addresses, so a warning may occur several times.
    draft.warnings = list(dict.fromkeys(said))
    return draft


def _refuse_nothing(contents: Contents) -> CommandError:
    """The reason why there is nothing to serve."""
    for handler in contents.script_handlers():
        return handler.refuse(handler.text, INSTEAD[handler.key])
    aliases = [
        directive
        for host in contents.hosts
        for directive in host.directives
        if directive.key == "wsgiscriptalias"
    ]
    if not aliases:
        others = [scoped.directive for host in contents.hosts for scoped in host.unfollowed]
        unfollowed = list_by_name((each.shown, each) for each in others)
        found = "no WSGIScriptAlias"
        found += f", but {unfollowed}, which headway serve does not follow" if others else ""
        allowed = "a WSGIScriptAlias that is reached by a Listen"
    elif not contents.listens:
        found = "no Listen, which Debian has in ports.conf"
        allowed = "--bind ADDRESS in its place, or the file that includes both"
    else:
        found = f"no Listen for WSGIScriptAlias ({places(aliases)})"
        allowed = "a Listen with the address and the port of its virtual host"
    return CommandError(
        f"{contents.path}: nothing to serve: found {found}; allowed: {allowed}", exit_code=2
    )


def _group_draft(contents: Contents, group: Group) -> GroupDraft:
    daemon = contents.daemons.get(group.name)
    place = group.binds[0].origin if daemon is None else daemon.directive.place
    draft = GroupDraft(group.shown, place, "", leaves_out=True)
    draft.binds = group.binds
    for alias in group.aliases.values():
        name = group.application_groups[alias.path]
        origin = alias.directive.place
        draft.mounts.append(mount(alias.path, alias.script, contents.server_root, origin, name))
        draft.application_groups[name.value] = ApplicationGroupDraft(
            origin, contents.interpreters.of_application_group(group.name, name.value)
        )
    given = _values_of_hosts(contents, group)
    given["max-body-size"] = read_body_limit(contents, group).value
    given["normalize-path"] = _normalize_path(contents, group)
    if group.tls is not None:
        given["tls-certificate"], given["tls-key"] = group.tls
    if daemon is not None:
        threads = daemon.given.get("threads")
        if threads is not None and threads.value == 0:
            raise daemon.directive.refuse("threads=0", "1 or more, to serve requests with")
        given = {**defaults(), **given, **daemon.given}
    draft.given = given
    _add_python(contents, group, daemon, given)
    return draft


def _normalize_path(contents: Contents, group: Group) -> Value:
    """httpd normalizes paths before it looks for an alias. If a directive keeps slashes as the
    client sends them, Headway keeps the whole path."""
    for host in (contents.main, *group.hosts):
        for directive in host.directives:
            usual = {"allowencodedslashes": "off", "mergeslashes": "on"}.get(directive.key)
            if usual is not None and directive.text.lower() != usual:
                contents.warnings.append(
                    f"{directive.place}: {directive.name} {directive.text}: URL paths reach the "
                    "application as clients send them, with .. and // in them"
                )
                return Value(False, directive.place)
    return Value(True, "as httpd does")


def _values_of_hosts(contents: Contents, group: Group) -> dict[str, Value]:
    """The values of httpd's own directives in server scope and then in the virtual hosts."""
    given = {
        name: value._replace(origin=f"{value.origin}, {INHERITED}")
        for name, value in _values_of(contents, contents.main).items()
    }
    own: dict[str, Value] = {}
    for host in group.hosts:
        if host is contents.main:
            continue
        for name, value in _values_of(contents, host).items():
            other = own.setdefault(name, value)
            if other.value != value.value:
                raise CommandError(
                    f"{value.origin}: found another value for {name} than at {other.origin}; "
                    f"allowed: one for process group {group.shown}",
                    exit_code=2,
                )
    for name in _LIMITS & own.keys():
        if any(
            host is not contents.main and name not in _values_of(contents, host)
            for host in group.hosts
        ):
            raise CommandError(
                f"{own[name].origin}: found {name} for one of the virtual hosts of process group "
                f"{group.shown}; allowed: the same for all of them",
                exit_code=2,
            )
    variables = read_variables(contents.main, group.hosts, contents.warnings)
    if variables:
        own["environ"] = Value(variables, next(iter(variables.values())).origin)
    return {**given, **own}


def _values_of(contents: Contents, host: Host) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for directive in host.directives:
        if directive.key in core.CORE and directive.key != "limitrequestbody":
            # httpd uses User and Group only if root started it.
            if directive.key not in ("user", "group") or os.geteuid() == 0:
                values.update(core.read_core(directive))
        elif directive.key == "customlog":
            log = core.read_log(directive, contents.formats, contents.server_root)
            if log is not None:
                values["access-log"] = log
        elif directive.key == "wsgitrustedproxies":
            values["trusted-proxies"] = _networks(directive)
        elif directive.key == "wsgitrustedproxyheaders":
            names, unknown = core.read_proxy_headers(directive)
            values["trusted-proxy-headers"] = Value(names, directive.place)
            contents.warnings += unknown
        elif directive.key == "wsgipythonhome":
            values["python-home"] = _file_name(contents, directive, "python-home")
    return values


def _file_name(contents: Contents, directive: Directive, option: str) -> Value:
    name: Any = parse_word(directive, OPTIONS[option].kind)
    return Value(os.path.join(contents.server_root, name), directive.place)


def _networks(directive: Directive) -> Value:
    kind = OPTIONS["trusted-proxies"].kind
    assert isinstance(kind, Several), "the option takes several networks"
    try:
        networks = tuple(kind.kind.parse(word) for word in directive.words)
    except ValueError:
        raise directive.refuse(directive.text, kind.allowed) from None
    return Value(networks, directive.place)


def _add_python(
    contents: Contents, group: Group, daemon: Daemon | None, given: dict[str, Value]
) -> None:
    """Sets the search path for modules, the directory of the processes, and the options of their
    GIL."""
    home = given.get("home")
    # mod_wsgi puts the directory of home= at the front of sys.path, and nothing if there is none.
    given["app-dir"] = home or Value("", "default")
    user = daemon.given.get("user") if daemon is not None else None
    if home is None and user is not None and (directory := home_of(user.value)):
        given["home"] = Value(directory, f"{user.origin}, the home of {user.value}")
    layers = contents.interpreters.python_path(group.name)
    layers += [given["python-path"]] if "python-path" in given else []
    if layers:
        paths = tuple(path for layer in layers for path in layer.value)
        given["python-path"] = Value(paths, " and ".join(layer.origin for layer in layers))
    _add_free_threading(contents, group, given)
    _add_switch_interval(contents, group, given)


def _add_free_threading(contents: Contents, group: Group, given: dict[str, Value]) -> None:
    wanted = contents.interpreters.free_threading(group.name)
    if wanted is None:
        return
    home = given["python-home"].value if "python-home" in given else None
    if wanted.value and free_threading.is_free_threaded(home) is False:
        contents.warnings.append(
            f"{wanted.origin}: WSGIFreeThreading is left out: {free_threading.interpreter(home)} "
            "cannot run without a GIL"
        )
        return
    given["free-threading"] = wanted


def _add_switch_interval(contents: Contents, group: Group, given: dict[str, Value]) -> None:
    """Adds the switch interval. That of WSGIDaemonProcess takes precedence. Without a GIL, none is
    kept."""
    of_daemon = given.get("switch-interval")
    interval = of_daemon or contents.interpreters.switch_interval(group.name)
    if interval is None:
        return
    if gil_enabled(given):
        given["switch-interval"] = interval
        return
    given.pop("switch-interval", None)
    if of_daemon is not None:
        what = f"switch-interval of process group {group.shown}"
    else:
        what = "WSGISwitchInterval"
    contents.warnings.append(
        f"{interval.origin}: {what} is left out: free-threading is active, and there is no GIL to "
        "yield"
    )
