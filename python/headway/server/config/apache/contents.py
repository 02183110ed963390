"""The contents of an Apache configuration, each directive with the hosts, process groups and
interpreters that it applies to.

Refuses directives in places in which mod_wsgi would refuse them. Directives that only httpd needs
are kept apart.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from headway.server.config.apache import core, other_directives, request_variables
from headway.server.config.apache.daemon import Daemon, read_daemon
from headway.server.config.apache.hosts import ACCESS, SCOPED, SCOPES, Host, find_scoped
from headway.server.config.apache.interpreters import CHILDREN, Interpreters
from headway.server.config.apache.reading import ApacheReader
from headway.server.config.apache.syntax import Directive
from headway.server.config.apache.telemetry import TELEMETRY
from headway.server.config.files import ConfigurationFiles

# The name of the process group for applications of the embedded mode.
DEFAULT_GROUP = "default"
SERVER_ONLY = {
    *CHILDREN,
    *core.SERVER_ONLY,
    *TELEMETRY,
    *("wsgiinterpreteroptions", "listen", "wsgipythonhome", "wsgirestrictembedded"),
}
# These directives stay with their host until the whole configuration has been read.
OF_HOST = {
    *core.CORE,
    *("sslengine", "sslcertificatefile", "sslcertificatekeyfile"),
    *("listen", "servername", "customlog"),
    *("wsgidaemonprocess", "wsgiscriptalias", "wsgipythonhome", "wsgirestrictembedded"),
    *("wsgitrustedproxies", "wsgitrustedproxyheaders", "wsgiimportscript"),
    *TELEMETRY,
    *request_variables.KEYS,
}
OTHER = (
    other_directives.REFUSED,
    other_directives.WITHOUT_EFFECT,
)


@dataclass
class Contents:
    """The contents of a configuration. `formats` has the formats of LogFormat by name. `skipped`
    has the directives that only httpd needs, by name. `warnings` are in the order of the file."""

    path: str
    server_root: str
    main: Host = field(default_factory=Host)
    virtual_hosts: list[Host] = field(default_factory=list)
    daemons: dict[str, Daemon] = field(default_factory=dict)
    interpreters: Interpreters = field(default_factory=Interpreters)
    formats: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, list[Directive]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> tuple[Host, ...]:
        return (self.main, *self.virtual_hosts)

    def skip(self, directive: Directive) -> None:
        self.skipped.setdefault(directive.shown, []).append(directive)


def read_contents(path: str, files: ConfigurationFiles) -> Contents:
    reader = ApacheReader(path, files)
    directives = reader.read(path)
    contents = Contents(path, reader.server_root)
    _sort(contents, directives, contents.main)
    _read_daemons(contents)
    return contents


def _sort(contents: Contents, directives: list[Directive], host: Host) -> None:
    is_main = host is contents.main
    for directive in directives:
        key = directive.key
        if key in SERVER_ONLY and not is_main:
            raise directive.refuse("it in <VirtualHost>", "at server scope alone")
        if key == "virtualhost":
            if not is_main or not directive.words:
                raise directive.refuse("it", "at server scope, with ADDRESS:PORT")
            contents.virtual_hosts.append(Host(directive))
            _sort(contents, directive.children or [], contents.virtual_hosts[-1])
        elif key == "wsgiinterpreteroptions" or key in CHILDREN:
            contents.interpreters.add(directive)
        elif key in SCOPED or key in ACCESS or (key in SCOPES and directive.children is not None):
            host.scoped += find_scoped([directive], (*SCOPED, *ACCESS))
            if key in SCOPES:
                _sort_section(contents, directive)
        elif key == "logformat" and len(directive.words) == 2:
            contents.formats[directive.words[1]] = directive.words[0]
        elif key in OF_HOST:
            host.directives.append(directive)
        else:
            _note_other(contents, directive)


def _sort_section(contents: Contents, section: Directive) -> None:
    """Sorts the other directives of a section for a part of the URLs. Headway uses none of them."""
    for directive in section.children or []:
        if directive.children is not None and directive.key in SCOPES:
            _sort_section(contents, directive)
        elif directive.key == "wsgiscriptalias" or directive.key in SERVER_ONLY:
            raise directive.refuse(f"it in {section.shown}", "outside of such sections")
        elif directive.key in request_variables.KEYS:
            contents.warnings.append(
                f"{directive.place}: {directive.name} in {section.shown} is left out: variables "
                "are for all that a host serves"
            )
        elif directive.key not in (*SCOPED, *ACCESS):
            _note_other(contents, directive)


def _note_other(contents: Contents, directive: Directive) -> None:
    if any(directive.key in table for table in OTHER):
        warning = other_directives.note(directive)
        if warning is not None:
            contents.warnings.append(warning)
    elif directive.key.startswith("wsgi") and directive.key not in OF_HOST:
        known = {*CHILDREN, *OF_HOST, *SCOPED, *(key for table in OTHER for key in table)}
        close = difflib.get_close_matches(directive.key, known, n=1)
        hint = f"; {close[0]} is the closest" if close else ""
        raise directive.refuse("no directive of that name", f"those of mod_wsgi{hint}")
    else:
        contents.skip(directive)


def _read_daemons(contents: Contents) -> None:
    for host in contents.hosts:
        for directive in host.directives:
            if directive.key != "wsgidaemonprocess":
                continue
            daemon = read_daemon(directive, host.server_name, host is not contents.main)
            other = contents.daemons.setdefault(daemon.name, daemon)
            if other is not daemon or daemon.name == DEFAULT_GROUP:
                first = other.directive.place if other is not daemon else "embedded mode"
                raise directive.refuse(
                    f"{daemon.name} a second time (first: {first})", "a name of its own"
                )
            contents.warnings += daemon.warnings
