"""Virtual hosts: what each serves, where, and in which process group.

A host is the main server or a <VirtualHost>. WSGIProcessGroup and WSGIApplicationGroup apply where
httpd applies them: beside the alias, in sections that match its path or its script, in the virtual
host, or at server scope.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.address import Address
from headway.server.config.apache.sections import Scoped, applies_at, merge_order
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value
from headway.server.config.option_types import GLOBAL, parse_url_path

SCOPED = ("wsgiprocessgroup", "wsgiapplicationgroup", "wsgicallableobject")


@dataclass
class Host:
    """The main server (`section` is `None`) or a virtual host. `directives` are those directly in
    the host; `scoped` are those at any depth that Headway reads by their sections, and `unfollowed`
    those that it does not follow."""

    section: Directive | None = None
    directives: list[Directive] = field(default_factory=list)
    scoped: list[Scoped] = field(default_factory=list)
    unfollowed: list[Scoped] = field(default_factory=list)

    @property
    def server_name(self) -> str | None:
        for directive in reversed(self.directives):
            if directive.key == "servername" and directive.words:
                return directive.words[0].rpartition("//")[2].partition(":")[0].lower()
        return None

    def answers(self, address: Address) -> int:
        """How well the host matches an address of Listen: 0 not at all, 1 by a wildcard, 2 by the
        address. Raises `CommandError` if it matches a part of the connections there."""
        if self.section is None:
            return 0
        return max((_fit(self.section, word, address) for word in self.section.words), default=0)


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IPv4 address within an IPv6 one is the IPv4 address. Raises `ValueError`."""
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def _fit(section: Directive, word: str, address: Address) -> int:
    found = re.fullmatch(r"(\*|_default_|\[[^\]]*\]|[^:\s]+)(?::(\*|[0-9]{1,5}))?", word, re.I)
    if not found:
        raise section.refuse(word, "ADDRESS:PORT, where each may be *")
    if found[2] not in (None, "*") and int(found[2]) != address.port:
        return 0
    if found[2] is None and found[1] != "*":
        raise section.refuse(word, "ADDRESS:PORT, since without one httpd takes another port")
    if found[1].lower() in ("*", "_default_"):
        return 1
    try:
        host = ip_of(found[1].strip("[]"))
    except ValueError:
        raise section.refuse(
            word, "an IP address or *, since names depend on the machine"
        ) from None
    if host.is_unspecified:
        return 1
    served = ip_of(address.host)
    if served.is_unspecified:
        raise section.refuse(
            word, f"* or no Listen on all addresses, since {address} is for other addresses too"
        )
    return 2 if host == served else 0


class Alias(NamedTuple):
    """A WSGIScriptAlias. `process_group` is "" for the default one. `application_group` is as
    written in `group_directive`. `server_name` is the name of the host that serves it."""

    path: str
    script: str
    process_group: str
    application_group: Value
    directive: Directive
    group_directive: Directive
    server_name: str | None


def read_alias(directive: Directive, host: Host, main: Host, server_root: str) -> Alias:
    """The alias as it applies in `host`, which has it or inherits it."""
    words = directive.words
    if len(words) < 2 or any("=" in word for word in words[:1]):
        raise directive.refuse(directive.text or "nothing", "URL-PATH SCRIPT option=value ...")
    try:
        path = parse_url_path(words[0])
    except ValueError:
        raise directive.refuse(words[0], "a URL path, as /admin") from None
    script = _script(directive, os.path.join(server_root, words[1]))
    given = dict(directive.options(2))
    for name, value in given.items():
        if name not in ("process-group", "application-group", "callable-object"):
            if name == "pass-authorization" and value.lower() in ("on", "off"):
                continue
            raise directive.refuse(
                f"{name}={value}",
                "process-group, application-group, callable-object, pass-authorization=On|Off",
            )
        if not value:
            raise directive.refuse(f"{name}=", "a name")

    def said(option: str, key: str) -> tuple[Directive, str] | None:
        """The value from the alias or from the directive that applies, and that directive."""
        if option in given:
            return directive, given[option]
        scoped = in_force((key,), path, script, (main, host) if host is not main else (main,))
        return None if scoped is None else (scoped, " ".join(scoped.words))

    def resolved(option: str, key: str, default: str) -> str:
        found = said(option, key)
        return default if found is None else _name(*found)

    callable_object = resolved("callable-object", "wsgicallableobject", "application")
    if callable_object != "application":
        raise directive.refuse(
            f"the callable {callable_object}", "application, as it is named in script files"
        )
    group = said("application-group", "wsgiapplicationgroup")
    return Alias(
        path,
        script,
        resolved("process-group", "wsgiprocessgroup", ""),
        Value("%{RESOURCE}", "mod_wsgi's default")
        if group is None
        else Value(group[1], group[0].place),
        directive,
        directive if group is None else group[0],
        host.server_name or main.server_name,
    )


def _script(directive: Directive, script: str) -> str:
    """The script of an alias. As in httpd, a slash at its end does not matter where the URL path is
    the root.

    httpd replaces the URL path by the script, character by character. With a slash at one end or
    both, it serves other paths than Headway would, or it finds scripts in a directory.
    """
    path = directive.words[0]
    if path == "/":
        script = script.rstrip("/")
    elif path.endswith("/") or script.endswith("/"):
        raise directive.refuse(
            f"{path} {directive.words[1]}",
            "both without a slash at the end, since Headway serves the URL path itself and all "
            "below it",
        )
    if os.path.isdir(script):
        raise directive.refuse(
            directive.words[1],
            "a script file, since httpd finds the scripts of a directory at each request; "
            "WSGIScriptAlias for each of them",
        )
    return script


def _name(directive: Directive, text: str) -> str:
    if text == GLOBAL:
        return ""
    if not text or "%{ENV:" in text:
        raise directive.refuse(text or "nothing", "a name that does not depend on the request")
    return text


def in_force(
    keys: tuple[str, ...], path: str, script: str, hosts: tuple[Host, ...]
) -> Directive | None:
    """The directive of `keys` that applies to a script under a URL path: of all that match, the one
    that httpd would merge last."""
    fitting = [
        (merge_order(scoped, order), scoped.directive)
        for order, host in enumerate(hosts)
        for scoped in host.scoped
        if scoped.directive.key in keys
        and all(applies_at(section, path, script) for section in scoped.sections)
    ]
    # A stable sort leaves the later of two equal directives last.
    return sorted(fitting, key=lambda each: each[0])[-1][1] if fitting else None
