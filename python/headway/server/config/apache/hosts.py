"""Virtual hosts: what each serves, where, and in which process group.

A host is the main server or a <VirtualHost>. WSGIProcessGroup and WSGIApplicationGroup apply where
httpd applies them: beside the alias, in sections that match its path or its script, in the virtual
host, or at server scope.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.address import Address
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value
from headway.server.config.option_types import GLOBAL, parse_url_path

# Sections whose contents apply to a part of the URLs or files. httpd merges them in this order.
SCOPES = ("directory", "directorymatch", "files", "filesmatch", "location", "locationmatch")
SCOPED = ("wsgiprocessgroup", "wsgiapplicationgroup", "wsgicallableobject")
# Directives that allow or deny access. The last one that applies decides.
ACCESS = ("require", "requireall", "requireany", "requirenone", "deny")


class Scoped(NamedTuple):
    """A directive that applies where all of `sections`, the outermost first, match."""

    directive: Directive
    sections: tuple[Directive, ...]


@dataclass
class Host:
    """The main server (`section` is `None`) or a virtual host. `directives` are those directly in
    the host; `scoped` are those of `SCOPED` and `ACCESS` at any depth."""

    section: Directive | None = None
    directives: list[Directive] = field(default_factory=list)
    scoped: list[Scoped] = field(default_factory=list)

    @property
    def server_name(self) -> str | None:
        for directive in reversed(self.directives):
            if directive.key == "servername" and directive.words:
                return directive.words[0].rpartition("//")[2].partition(":")[0].lower()
        return None

    def answers(self, address: Address) -> int:
        """How well the host matches an address of Listen: 0 not at all, 1 by a wildcard, 2 by the
        address."""
        if self.section is None:
            return 0
        return max((_fit(self.section, word, address) for word in self.section.words), default=0)


def _fit(section: Directive, word: str, address: Address) -> int:
    found = re.fullmatch(r"(\*|_default_|\[[^\]]*\]|[^:\s]+)(?::(\*|[0-9]{1,5}))?", word)
    if not found:
        raise section.refuse(word, "ADDRESS:PORT, where each may be *")
    if found[2] not in (None, "*") and int(found[2]) != address.port:
        return 0
    host = found[1].strip("[]")
    if host in ("*", "_default_"):
        return 1
    return 2 if host == address.host else int(address.host in ("0.0.0.0", "::"))


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
    script = os.path.join(server_root, words[1])
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
        (_merge_order(scoped, order), scoped.directive)
        for order, host in enumerate(hosts)
        for scoped in host.scoped
        if scoped.directive.key in keys
        and all(_fits(section, path, script) for section in scoped.sections)
    ]
    # A stable sort leaves the later of two equal directives last.
    return sorted(fitting, key=lambda each: each[0])[-1][1] if fitting else None


def _merge_order(scoped: Scoped, host_order: int) -> tuple[int, int, int]:
    """Sections override hosts, <Location> overrides <Files> and <Files> <Directory>, a longer
    <Directory> overrides a shorter one, and a virtual host overrides the main server."""
    if not scoped.sections:
        return -1, host_order, 0
    section = scoped.sections[-1]
    length = len(section.words[-1]) if section.key == "directory" and section.words else 0
    return SCOPES.index(section.key), length, host_order


def _fits(section: Directive, path: str, script: str) -> bool:
    words = section.words
    if not words:
        raise section.refuse("nothing", "a path")
    is_pattern = section.key.endswith("match") or words[0] == "~"
    subject = {
        "d": os.path.dirname(script) + "/",
        "f": os.path.basename(script),
        "l": path or "/",
    }[section.key[0]]
    if is_pattern:
        try:
            return re.search(words[-1], subject) is not None
        except re.error as error:
            raise section.refuse(words[-1], f"a regular expression ({error})") from None
    wanted = words[0]
    if section.key == "files":
        return fnmatch.fnmatchcase(subject, wanted)
    if set("*?[") & set(wanted):
        pattern = fnmatch.translate(wanted.rstrip("/")).removesuffix(r"\Z").removesuffix(r"\z")
        return re.match(rf"(?:{pattern})(?:/|$)", subject) is not None
    return f"{subject.rstrip('/')}/".startswith(f"{wanted.rstrip('/')}/")


def find_scoped(
    directives: list[Directive], keys: tuple[str, ...], sections: tuple[Directive, ...] = ()
) -> Iterator[Scoped]:
    """Every directive of `keys` in `directives`, at any depth of sections."""
    for directive in directives:
        if directive.children is not None and directive.key in SCOPES:
            yield from find_scoped(directive.children, keys, (*sections, directive))
        elif directive.key in keys:
            yield Scoped(directive, sections)
