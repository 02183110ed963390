"""Finds the process groups of an Apache configuration: which group serves which applications on
which address.

httpd distinguishes hosts by their names, and passes each request to the process group of its alias.
In Headway an address belongs to one process group, so configurations that need more are refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from headway.address import Address, parse_address
from headway.server.config.apache.application_groups import name_of
from headway.server.config.apache.contents import DEFAULT_GROUP, Contents
from headway.server.config.apache.hosts import Alias, Host, ip_of, read_alias
from headway.server.config.apache.interpreters import ON_OR_OFF, parse_word
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value


@dataclass
class Group:
    """The applications of one process group, its addresses and its hosts. `name` is "" for the
    default group; aliases and their application groups are by path; `tls` holds certificate and
    key."""

    name: str
    aliases: dict[str, Alias]
    application_groups: dict[str, Value]
    tls: tuple[Value, Value] | None
    binds: list[Value] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)

    @property
    def shown(self) -> str:
        return self.name or DEFAULT_GROUP


def find_groups(contents: Contents, has_bind: bool) -> list[Group]:
    """The groups that serve something, in the order of their first Listen. With `has_bind`, the
    addresses come from elsewhere, and a file without Listen listens where its virtual hosts are."""
    groups: dict[str, Group] = {}
    for listen in contents.listens or (_implied_listens(contents) if has_bind else []):
        address = _address(listen)
        hosts = _hosts_at(contents, address)
        aliases = _aliases_at(contents, listen, hosts)
        names = sorted({alias.process_group for alias in aliases.values()})
        if not names:
            contents.warnings.append(
                f"{listen.place}: nothing is served on {address}; it is left out"
            )
            continue
        if len(names) > 1:
            said = ", ".join(name or DEFAULT_GROUP for name in names)
            raise listen.refuse(
                f"the process groups {said} on {address}",
                "one process group on one address; give each a Listen of its own",
            )
        tls = _tls(contents, hosts, listen)
        group = groups.get(names[0])
        if group is None:
            named = {
                alias.path: name_of(alias, address.port, contents.warnings)
                for alias in aliases.values()
            }
            group = groups[names[0]] = Group(names[0], aliases, named, tls)
        if _scripts(group.aliases) != _scripts(aliases) or group.tls != tls:
            raise listen.refuse(
                f"process group {group.shown} with other applications, or other TLS, than on "
                f"{group.binds[0].value}",
                "the same on all addresses of a process group",
            )
        group.binds.append(Value(address, listen.place))
        group.hosts += [host for host in hosts if host not in group.hosts]
    return list(groups.values())


def _implied_listens(contents: Contents) -> list[Directive]:
    """A Listen for each address of a virtual host, or for port 80 if there are none."""
    found: dict[str, Directive] = {}
    for host in contents.virtual_hosts:
        section = host.section
        assert section is not None, "a virtual host has a section"
        for word in section.words:
            port = word.rpartition(":")[2] if re.search(r":\d+\Z", word, re.ASCII) else "80"
            address = re.sub(r":(\d+|\*)\Z", "", word)
            text = port if address.lower() in ("*", "_default_") else f"{address}:{port}"
            found.setdefault(text, Directive(section.name, text, section.file, section.line))
    return list(found.values()) or [Directive("Listen", "80", contents.path, 1)]


def _scripts(aliases: dict[str, Alias]) -> dict[str, tuple[str, str]]:
    """The script and the application group of each path."""
    return {path: (alias.script, alias.application_group.value) for path, alias in aliases.items()}


def _address(listen: Directive) -> Address:
    text = listen.words[0] if listen.words else ""
    try:
        text = re.sub(r"\A\*:", "", text)
        address = parse_address(text if ":" in text else f"0.0.0.0:{text}")
        ip_of(address.host)
    except ValueError:
        raise listen.refuse(
            text or "nothing", "[ADDRESS:]PORT, where the address is no name"
        ) from None
    return address


def _hosts_at(contents: Contents, address: Address) -> list[Host]:
    """The hosts from which httpd would choose by name for a connection to this address."""
    fits = [(host, host.answers(address)) for host in contents.virtual_hosts]
    best = max((fit for _, fit in fits), default=0)
    return [host for host, fit in fits if fit == best] if best else [contents.main]


def _aliases_at(contents: Contents, listen: Directive, hosts: list[Host]) -> dict[str, Alias]:
    found: dict[str, Alias] = {}
    for host in hosts:
        for alias in _aliases_of(contents, host):
            other = found.setdefault(alias.path, alias)
            same = (
                other.script == alias.script,
                other.process_group == alias.process_group,
                other.application_group.value == alias.application_group.value,
            )
            if not all(same):
                raise alias.directive.refuse(
                    f"{alias.path or '/'} for two applications on one address, or in two groups "
                    f"(first: {other.directive.place})",
                    "one each; virtual hosts are not distinguished by their names",
                )
    if len(hosts) > 1 and found:
        names = ", ".join(host.server_name or "(no ServerName)" for host in hosts)
        contents.warnings.append(
            f"{listen.place}: virtual hosts are not distinguished by their names: each of {names} "
            "answers with the applications of all"
        )
    return found


def _aliases_of(contents: Contents, host: Host) -> list[Alias]:
    """The aliases of the host, then those of the main server that the host does not override."""
    aliases: dict[str, Alias] = {}
    for each in (host, contents.main) if host is not contents.main else (host,):
        for directive in each.directives:
            if directive.key != "wsgiscriptalias":
                continue
            alias = read_alias(directive, host, contents.main, contents.server_root)
            if alias.path in aliases:
                continue
            if any(f"{alias.path}/".startswith(f"{path}/") for path in aliases):
                contents.warnings.append(
                    f"{directive.place}: WSGIScriptAlias {alias.path} comes after one that hides "
                    "it from mod_wsgi; here the longer path goes first"
                )
            _check_group(contents, alias, host)
            aliases[alias.path] = alias
    return list(aliases.values())


def _check_group(contents: Contents, alias: Alias, host: Host) -> None:
    name = alias.process_group
    if not name:
        for directive in contents.main.directives:
            if directive.key == "wsgirestrictembedded" and parse_word(directive, ON_OR_OFF):
                raise alias.directive.refuse(
                    "no process group for it",
                    f"process-group=, since {directive.place} restricts embedded mode",
                )
        return
    daemon = contents.daemons.get(name)
    if daemon is None:
        known = ", ".join(contents.daemons) or "none is declared"
        raise alias.directive.refuse(f"the process group {name}", f"{known}, or %{{GLOBAL}}")
    if daemon.is_virtual and daemon.server_name != host.server_name:
        raise alias.directive.refuse(
            f"the process group {name} of another virtual host ({daemon.directive.place})",
            "one of this ServerName, or of server scope",
        )


def _tls(contents: Contents, hosts: list[Host], listen: Directive) -> tuple[Value, Value] | None:
    """The certificate and key of the hosts at one address."""
    found: list[tuple[Value, Value] | None] = []
    for host in hosts:
        pair = _certificate(contents, host)
        if pair not in found:
            found.append(pair)
    if len(found) > 1:
        raise listen.refuse(
            "hosts of which some have TLS and some not, or with certificates of their own",
            "one certificate for an address",
        )
    return found[0]


def _certificate(contents: Contents, host: Host) -> tuple[Value, Value] | None:
    given = {each.key: each for each in (*contents.main.directives, *host.directives)}
    engine = given.get("sslengine")
    if engine is None or not parse_word(engine, ON_OR_OFF):
        return None
    certificate = given.get("sslcertificatefile")
    if certificate is None or not certificate.words:
        raise engine.refuse("on", "on with SSLCertificateFile")
    key = given.get("sslcertificatekeyfile", certificate)
    if not key.words:
        raise key.refuse("nothing", "the name of a file")
    files = [os.path.join(contents.server_root, each.words[0]) for each in (certificate, key)]
    return Value(files[0], certificate.place), Value(files[1], key.place)
