"""An Apache configuration with mod_wsgi's directives, as a draft of what Headway is to serve.

Each WSGIDaemonProcess that an alias leads to becomes a process group; Apache's embedded mode
becomes the group `default`, which serves what no WSGIDaemonProcess was given. What is for httpd
alone is skipped, and one warning names it.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field

from headway.errors import CommandError
from headway.server.apache import core, other_directives
from headway.server.apache.daemon import Daemon, defaults, home_of, read_daemon
from headway.server.apache.hosts import (
    ACCESS,
    SCOPED,
    SCOPES,
    Alias,
    Host,
    find_scoped,
    in_force,
    read_alias,
)
from headway.server.apache.interpreters import CHILDREN, ON_OR_OFF, Interpreters, parse_word
from headway.server.apache.reading import ApacheReader
from headway.server.apache.syntax import Directive, places
from headway.server.binding import Address, parse_address
from headway.server.configuration import Draft, GroupDraft, Value, mount
from headway.server.kinds import Several
from headway.server.options import OPTIONS

DEFAULT_GROUP = "default"
INHERITED = "inherited from server scope"
TLS = ("sslengine", "sslcertificatefile", "sslcertificatekeyfile")
SERVER_ONLY = {
    *CHILDREN,
    *core.SERVER_ONLY,
    *other_directives.TELEMETRY,
    *("wsgiinterpreteroptions", "listen", "wsgipythonhome", "wsgirestrictembedded", "pidfile"),
}
# Kept with the host, and looked at once all is read.
OF_HOST = {
    *core.CORE,
    *TLS,
    *("listen", "servername", "customlog", "pidfile"),
    *("wsgidaemonprocess", "wsgiscriptalias", "wsgipythonhome", "wsgirestrictembedded"),
    *("wsgitrustedproxies", "wsgiimportscript"),
}


@dataclass
class _Group:
    """A process group as it comes together: what it serves, where, and for which hosts."""

    name: str  # "" for the default one
    aliases: dict[str, Alias]
    tls: tuple[Value, Value] | None
    binds: list[Value] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)

    @property
    def shown(self) -> str:
        return self.name or DEFAULT_GROUP


def read_apache(path: str) -> Draft:
    """The draft that the file and those it includes make; raises `CommandError` with exit code
    2."""
    return _ApacheFile(path).draft()


class _ApacheFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self._draft = Draft()
        self._interpreters = Interpreters()
        self._main = Host()
        self._hosts: list[Host] = []
        self._daemons: dict[str, Daemon] = {}
        self._formats: dict[str, str] = {}
        self._skipped: dict[str, list[Directive]] = {}
        reader = ApacheReader(path)
        directives = reader.read(path)
        self._server_root = reader.server_root
        self._sort(directives, self._main)

    def draft(self) -> Draft:
        self._read_daemons()
        groups = self._groups()
        if not groups:
            raise CommandError(
                f"{self._path}: found nothing to serve; allowed: Listen, and a WSGIScriptAlias "
                "that is reached there",
                exit_code=2,
            )
        for group in groups:
            self._draft.groups.append(self._group_draft(group))
        for directive in self._main.directives:
            if directive.key == "pidfile":
                name = os.path.join(self._server_root, directive.words[0])
                self._draft.server["pid-file"] = Value(name, directive.place)
        self._warn_of_what_is_left(groups)
        # A host may be looked at for several addresses.
        self._draft.warnings = list(dict.fromkeys(self._draft.warnings))
        return self._draft

    def _warn(self, warning: str) -> None:
        self._draft.warnings.append(warning)

    # Sorting: each directive to whom it concerns.

    def _sort(self, directives: list[Directive], host: Host) -> None:
        for directive in directives:
            key = directive.key
            if key in SERVER_ONLY and host is not self._main:
                raise directive.refuse("it in <VirtualHost>", "at server scope alone")
            if key == "virtualhost":
                if host is not self._main or not directive.words:
                    raise directive.refuse("it", "at server scope, with ADDRESS:PORT")
                self._hosts.append(Host(directive))
                self._sort(directive.children or [], self._hosts[-1])
            elif key == "wsgiinterpreteroptions" or key in CHILDREN:
                self._interpreters.add(directive)
            elif key in SCOPES and directive.children is not None:
                host.scoped += find_scoped([directive], (*SCOPED, *ACCESS))
                self._sort_section(directive)
            elif key in SCOPED or key in ACCESS:
                host.scoped += find_scoped([directive], (*SCOPED, *ACCESS))
            elif key == "logformat" and len(directive.words) == 2:
                self._formats[directive.words[1]] = directive.words[0]
            elif key in OF_HOST:
                host.directives.append(directive)
            else:
                self._note_other(directive)

    def _sort_section(self, section: Directive) -> None:
        """What else is in a section: nothing there is for Headway."""
        for directive in section.children or []:
            if directive.children is not None and directive.key in SCOPES:
                self._sort_section(directive)
            elif directive.key == "wsgiscriptalias" or directive.key in SERVER_ONLY:
                raise directive.refuse(f"it in {section.shown}", "outside of such sections")
            elif directive.key not in (*SCOPED, *ACCESS):
                self._note_other(directive)

    def _note_other(self, directive: Directive) -> None:
        tables = (
            other_directives.REFUSED,
            other_directives.WITHOUT_EFFECT,
            other_directives.TELEMETRY,
        )
        if any(directive.key in table for table in tables):
            warning = other_directives.note(directive)
            if warning is not None:
                self._warn(warning)
        elif directive.key.startswith("wsgi"):
            known = {*CHILDREN, *OF_HOST, *SCOPED, *(key for table in tables for key in table)}
            close = difflib.get_close_matches(directive.key, known, n=1)
            hint = f"; {close[0]} is the closest" if close else ""
            raise directive.refuse("no directive of that name", f"those of mod_wsgi{hint}")
        else:
            self._skipped.setdefault(directive.shown, []).append(directive)

    # Process groups: what is declared, and what leads to them.

    def _read_daemons(self) -> None:
        for host in (self._main, *self._hosts):
            for directive in host.directives:
                if directive.key != "wsgidaemonprocess":
                    continue
                daemon = read_daemon(directive, host.server_name, host is not self._main)
                other = self._daemons.setdefault(daemon.name, daemon)
                if other is not daemon or daemon.name == DEFAULT_GROUP:
                    first = other.directive.place if other is not daemon else "embedded mode"
                    raise directive.refuse(
                        f"{daemon.name} a second time (first: {first})", "a name of its own"
                    )
                self._draft.warnings += daemon.warnings

    def _groups(self) -> list[_Group]:
        groups: dict[str, _Group] = {}
        for listen in self._main.directives:
            if listen.key != "listen":
                continue
            address = self._address(listen)
            hosts = self._hosts_at(address)
            aliases = self._aliases_at(listen, hosts)
            names = sorted({alias.process_group for alias in aliases.values()})
            if not names:
                self._warn(f"{listen.place}: nothing is served on {address}; it is left out")
                continue
            if len(names) > 1:
                said = ", ".join(name or DEFAULT_GROUP for name in names)
                raise listen.refuse(
                    f"the process groups {said} on {address}",
                    "one process group on one address; give each a Listen of its own",
                )
            tls = self._tls(hosts, listen)
            group = groups.setdefault(names[0], _Group(names[0], aliases, tls))
            if _served(group.aliases) != _served(aliases) or bool(group.tls) != bool(tls):
                raise listen.refuse(
                    f"process group {group.shown} with other applications, or other TLS, than on "
                    f"{group.binds[0].value}",
                    "the same on all addresses of a process group",
                )
            group.binds.append(Value(address, listen.place))
            group.hosts += [host for host in hosts if host not in group.hosts]
        return list(groups.values())

    def _address(self, listen: Directive) -> Address:
        words = listen.words
        text = words[0] if words else ""
        try:
            return parse_address(text if ":" in text else f"0.0.0.0:{text}")
        except ValueError:
            raise listen.refuse(text or "nothing", "[ADDRESS:]PORT") from None

    def _hosts_at(self, address: Address) -> list[Host]:
        """The hosts that httpd would choose among, by name, for a connection there."""
        fits = [(host, host.answers(address)) for host in self._hosts]
        best = max((fit for _, fit in fits), default=0)
        return [host for host, fit in fits if fit == best] if best else [self._main]

    def _aliases_at(self, listen: Directive, hosts: list[Host]) -> dict[str, Alias]:
        found: dict[str, Alias] = {}
        for host in hosts:
            own = self._aliases_of(host)
            for alias in own:
                other = found.setdefault(alias.path, alias)
                if _target(other) != _target(alias):
                    raise alias.directive.refuse(
                        f"{alias.path or '/'} for two applications on one address (first: "
                        f"{other.directive.place})",
                        "one each; hosts are not told apart by their names",
                    )
        if len(hosts) > 1 and found:
            names = ", ".join(host.server_name or "(no ServerName)" for host in hosts)
            self._warn(
                f"{listen.place}: hosts are not told apart by their names: each of {names} answers "
                "with the applications of all"
            )
        return found

    def _aliases_of(self, host: Host) -> list[Alias]:
        """Its own, then those of the main server that it does not have itself."""
        aliases: dict[str, Alias] = {}
        for each in (host, self._main) if host is not self._main else (host,):
            for directive in each.directives:
                if directive.key != "wsgiscriptalias":
                    continue
                alias = read_alias(directive, host, self._main, self._server_root)
                hiding = [path for path in aliases if f"{alias.path}/".startswith(f"{path}/")]
                if alias.path not in aliases and hiding:
                    self._warn(
                        f"{directive.place}: WSGIScriptAlias {alias.path} comes after one that "
                        "hides it from mod_wsgi; here the longer path goes first"
                    )
                if alias.path not in aliases:
                    self._check_group(alias, host)
                    aliases[alias.path] = alias
        return list(aliases.values())

    def _check_group(self, alias: Alias, host: Host) -> None:
        name = alias.process_group
        if not name:
            for directive in self._main.directives:
                if directive.key == "wsgirestrictembedded" and parse_word(directive, ON_OR_OFF):
                    raise alias.directive.refuse(
                        "no process group for it",
                        f"process-group=, since {directive.place} restricts embedded mode",
                    )
            return
        daemon = self._daemons.get(name)
        if daemon is None:
            known = ", ".join(self._daemons) or "none is declared"
            raise alias.directive.refuse(f"the process group {name}", f"{known}, or %{{GLOBAL}}")
        if daemon.is_virtual and daemon.server_name != host.server_name:
            raise alias.directive.refuse(
                f"the process group {name} of another virtual host ({daemon.directive.place})",
                "one of this ServerName, or of server scope",
            )

    def _tls(self, hosts: list[Host], listen: Directive) -> tuple[Value, Value] | None:
        found: list[tuple[Value, Value]] = []
        plain = False
        for host in hosts:
            given = {each.key: each for each in (*self._main.directives, *host.directives)}
            engine = given.get("sslengine")
            if engine is None or engine.text.lower() != "on":
                plain = True
                continue
            certificate = given.get("sslcertificatefile")
            if certificate is None or not certificate.words:
                raise engine.refuse("on", "on with SSLCertificateFile")
            key = given.get("sslcertificatekeyfile", certificate)
            files = [os.path.join(self._server_root, each.words[0]) for each in (certificate, key)]
            pair = (Value(files[0], certificate.place), Value(files[1], key.place))
            if pair not in found:
                found.append(pair)
        if len({(pair[0].value, pair[1].value) for pair in found}) > 1 or (found and plain):
            raise listen.refuse(
                "hosts with different certificates", "one certificate for an address"
            )
        return found[0] if found else None

    # From a group to its draft.

    def _group_draft(self, group: _Group) -> GroupDraft:
        daemon = self._daemons.get(group.name)
        if daemon is not None:
            threads = daemon.given.get("threads")
            if threads is not None and threads.value == 0:
                raise daemon.directive.refuse("threads=0", "1 or more, to serve requests with")
        place = daemon.directive.place if daemon is not None else group.binds[0].origin
        draft = GroupDraft(group.shown, place, "")
        draft.binds = group.binds
        draft.mounts = [
            mount(alias.path, alias.script, self._server_root, alias.directive.place)
            for alias in group.aliases.values()
        ]
        if group.tls is not None:
            draft.given["tls-certificate"], draft.given["tls-key"] = group.tls
        self._add_host_values(draft, group)
        if daemon is not None:
            draft.given = {**defaults(), **draft.given, **daemon.given}
        self._add_python(draft, group, daemon)
        return draft

    def _add_host_values(self, draft: GroupDraft, group: _Group) -> None:
        """What server scope and then the virtual hosts say in httpd's own directives."""
        draft.given.update(
            (name, value._replace(origin=f"{value.origin}, {INHERITED}"))
            for name, value in self._values_of(self._main).items()
        )
        own: dict[str, Value] = {}
        for host in group.hosts:
            if host is self._main:
                continue
            for name, value in self._values_of(host).items():
                other = own.setdefault(name, value)
                if other.value != value.value:
                    raise CommandError(
                        f"{value.origin}: found another value for {name} than at {other.origin}; "
                        f"allowed: one for process group {draft.name}",
                        exit_code=2,
                    )
        draft.given.update(own)

    def _values_of(self, host: Host) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for directive in host.directives:
            if directive.key in core.CORE:
                read = core.read_core(directive)
                if directive.key not in ("user", "group") or os.geteuid() == 0:
                    values.update(read)
            elif directive.key == "customlog":
                log = core.read_log(directive, self._formats, self._server_root)
                if log is not None:
                    values["access-log"] = log
            elif directive.key == "wsgitrustedproxies":
                values["trusted-proxies"] = self._networks(directive)
            elif directive.key == "wsgipythonhome":
                path = os.path.join(self._server_root, str(parse_word(directive, _DIRECTORY)))
                values["python-home"] = Value(path, directive.place)
        return values

    def _networks(self, directive: Directive) -> Value:
        kind = OPTIONS["trusted-proxies"].kind
        assert isinstance(kind, Several), "the option takes several networks"
        try:
            networks = tuple(kind.kind.parse(word) for word in directive.words)
        except ValueError:
            raise directive.refuse(directive.text, kind.allowed) from None
        return Value(networks, directive.place)

    def _add_python(self, draft: GroupDraft, group: _Group, daemon: Daemon | None) -> None:
        given = draft.given
        home = given.get("home")
        # mod_wsgi puts home= at the front of sys.path, and nothing in its place.
        given["app-dir"] = home or Value("", "default")
        user = daemon.given.get("user") if daemon else None
        if home is None and user is not None and (directory := home_of(str(user.value))):
            given["home"] = Value(directory, f"{user.origin}, the home of {user.value}")
        applications = {alias.application_group for alias in group.aliases.values()}
        layers = self._interpreters.python_path(group.name, applications)
        layers += [given["python-path"]] if "python-path" in given else []
        if layers:
            paths = tuple(path for layer in layers for path in layer.value)
            given["python-path"] = Value(paths, " and ".join(layer.origin for layer in layers))
        interval = self._interpreters.switch_interval(group.name)
        if interval is not None:
            given.setdefault("switch-interval", interval)

    # What is left to say.

    def _warn_of_what_is_left(self, groups: list[_Group]) -> None:
        served = {group.name: group for group in groups}
        for name, daemon in self._daemons.items():
            if name not in served:
                self._warn(
                    f"{daemon.directive.place}: process group {name} is left out: no "
                    "WSGIScriptAlias that is served leads to it"
                )
        self._draft.warnings += self._interpreters.warnings
        for name, section in self._interpreters.groups_named().items():
            if name not in self._daemons:
                self._warn(f"{section.place}: there is no process group {name}")
        self._warn_of_top_interval(served)
        for group in groups:
            self._warn_of_interpreters(group)
            self._warn_of_access(group)
        scripts = {alias.script for group in groups for alias in group.aliases.values()}
        for host in (self._main, *self._hosts):
            self._warn_of_directives(host, scripts)
        if self._skipped:
            named = "; ".join(f"{name} ({places(them)})" for name, them in self._skipped.items())
            self._warn(f"{self._path}: skipped what is for httpd alone: {named}")

    def _warn_of_top_interval(self, served: dict[str, _Group]) -> None:
        top = self._interpreters.top_switch_interval()
        without = [
            draft.name
            for draft in self._draft.groups
            if draft.name in self._daemons and "switch-interval" not in draft.given
        ]
        if top is not None and without:
            self._warn(
                f"{top.origin}: WSGISwitchInterval is for the default process group alone, and not "
                f"for {', '.join(without)}: that takes switch-interval= of WSGIDaemonProcess"
            )

    def _warn_of_interpreters(self, group: _Group) -> None:
        named = {alias.application_group for alias in group.aliases.values()}
        for alias in group.aliases.values():
            if alias.application_group not in ("", "%{RESOURCE}"):
                self._warn(
                    f"{alias.directive.place}: application group {alias.application_group} runs in "
                    "the main interpreter for now"
                )
        if len(group.aliases) > 1 and named != {""}:
            self._warn(
                f"{group.binds[0].origin}: the {len(group.aliases)} applications of process group "
                f"{group.shown} share the main interpreter for now"
            )

    def _warn_of_access(self, group: _Group) -> None:
        found = []
        for alias in group.aliases.values():
            for host in group.hosts:
                hosts = (self._main, host) if host is not self._main else (host,)
                rule = in_force(ACCESS, alias.path, alias.script, hosts)
                if rule is not None and rule.text.lower() != "all granted" and rule not in found:
                    found.append(rule)
        if found:
            self._warn(
                f"{found[0].place}: access control is not done here, and whoever reaches process "
                f"group {group.shown} is let in: {found[0].shown} ({places(found)})"
            )

    def _warn_of_directives(self, host: Host, scripts: set[str]) -> None:
        for directive in host.directives:
            if directive.key == "customlog" and (
                core.read_log(directive, self._formats, self._server_root) is None
            ):
                self._skipped.setdefault(directive.shown, []).append(directive)
            elif directive.key == "wsgiimportscript" and not scripts & set(directive.words):
                self._warn(
                    f"{directive.place}: WSGIImportScript is left out: what aliases lead to is "
                    "loaded at the start, and nothing else"
                )


_DIRECTORY = OPTIONS["python-home"].kind


def _target(alias: Alias) -> tuple[str, str]:
    return alias.script, alias.process_group


def _served(aliases: dict[str, Alias]) -> dict[str, str]:
    return {path: alias.script for path, alias in aliases.items()}
