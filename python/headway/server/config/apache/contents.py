"""The contents of an Apache configuration, each directive with the hosts, process groups and
interpreters that it applies to.

Refuses directives in places in which mod_wsgi would refuse them. Directives that Headway does not
follow are kept apart, unless they are harmless.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field

from headway.errors import CommandError
from headway.server.config.apache import core, other_directives, request_variables
from headway.server.config.apache.access import ACCESS, is_open
from headway.server.config.apache.daemon import Daemon, read_daemon
from headway.server.config.apache.harmless import is_harmless
from headway.server.config.apache.hosts import SCOPED, Host
from headway.server.config.apache.interpreters import CHILDREN, Interpreters
from headway.server.config.apache.reading import CONDITIONS, ApacheReader, read_file
from headway.server.config.apache.sections import SCOPES, Scoped
from headway.server.config.apache.syntax import Directive, places
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
    *("accessfilename", "customlog", "listen", "servername"),
    *("wsgidaemonprocess", "wsgiscriptalias", "wsgipythonhome", "wsgirestrictembedded"),
    *("wsgitrustedproxies", "wsgitrustedproxyheaders", "wsgiimportscript"),
    *TELEMETRY,
    *request_variables.KEYS,
}
# Headway reads these by the sections that they are in.
BY_SECTION = {*SCOPED, *ACCESS, "allowoverride", "allowoverridelist", "options"}


@dataclass
class Contents:
    """The contents of a configuration. `formats` has the formats of LogFormat by name. `warnings`
    are in the order of the file."""

    path: str
    server_root: str
    main: Host = field(default_factory=Host)
    virtual_hosts: list[Host] = field(default_factory=list)
    daemons: dict[str, Daemon] = field(default_factory=dict)
    interpreters: Interpreters = field(default_factory=Interpreters)
    formats: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> tuple[Host, ...]:
        return (self.main, *self.virtual_hosts)

    def script_handlers(self) -> Iterator[Directive]:
        """The directives that make scripts of files without an alias."""
        for host in self.hosts:
            for directive, _ in host.unfollowed:
                if directive.words[:1] == ["wsgi-script"]:
                    yield directive

    def scoped_in(self, host: Host) -> list[tuple[int, Scoped]]:
        """The directives that apply in a host by their sections, each with the order in which httpd
        merges the hosts."""
        of_main = [(0, each) for each in self.main.scoped]
        return of_main if host is self.main else of_main + [(1, each) for each in host.scoped]

    @property
    def access_file_names(self) -> list[str]:
        """The names of the files that httpd reads beside the files that it serves."""
        found = [
            name
            for host in self.hosts
            for directive in host.directives
            if directive.key == "accessfilename"
            for name in directive.words
        ]
        return found or [".htaccess"]


def read_contents(path: str, files: ConfigurationFiles) -> Contents:
    reader, directives = read_file(path, files)
    contents = Contents(path, reader.server_root, warnings=list(_conditions(reader, path)))
    _sort(contents, directives, contents.main)
    _read_daemons(contents)
    return contents


def _sort(
    contents: Contents,
    directives: list[Directive],
    host: Host,
    sections: tuple[Directive, ...] = (),
) -> None:
    for directive in directives:
        key, scoped = directive.key, Scoped(directive, sections)
        if key in SERVER_ONLY and host is not contents.main:
            raise directive.refuse("it in <VirtualHost>", "at server scope alone")
        if sections and (key == "wsgiscriptalias" or key in SERVER_ONLY):
            raise directive.refuse(f"it in {sections[-1].shown}", "outside of such sections")
        if key == "virtualhost":
            if sections or host is not contents.main or not directive.words:
                raise directive.refuse("it", "at server scope, with ADDRESS:PORT")
            contents.virtual_hosts.append(Host(directive))
            _sort(contents, directive.children or [], contents.virtual_hosts[-1])
        elif key == "wsgiinterpreteroptions" or key in CHILDREN:
            contents.interpreters.add(directive)
        elif key in SCOPES and directive.children is not None:
            _sort(contents, directive.children, host, (*sections, directive))
        elif key in BY_SECTION or (sections and key == "limitrequestbody"):
            host.scoped.append(scoped)
        elif key == "logformat" and len(directive.words) == 2:
            contents.formats[directive.words[1]] = directive.words[0]
        elif key in OF_HOST and not sections:
            host.directives.append(directive)
        elif key in other_directives.WITHOUT_EFFECT or key in other_directives.REFUSED:
            if (warning := other_directives.note(directive)) is not None:
                contents.warnings.append(warning)
        elif key == "ifmodule":
            if not _may_be_skipped(directive):
                host.unfollowed.append(scoped)
        elif key.startswith("wsgi") and key not in (*OF_HOST, *other_directives.INSTEAD):
            raise _unknown(directive)
        elif not is_harmless(directive):
            host.unfollowed.append(scoped)


def _conditions(reader: ApacheReader, path: str) -> Iterator[str]:
    """Warnings about sections whose conditions the files leave open."""
    relevant = [each for each in reader.conditions if not _may_be_skipped(each)]
    assumed = [each for each in relevant if each.key == "ifmodule" and reader.has_all_modules]
    skipped = [each for each in relevant if each not in assumed]
    if assumed:
        yield (
            f"{path}: there is no LoadModule, so each module is taken as loaded: {_named(assumed)}"
        )
    if skipped:
        yield f"{path}: skipped, since nothing loads or defines its name: {_named(skipped)}"


def _named(sections: list[Directive]) -> str:
    by_name: dict[str, list[Directive]] = {}
    for section in sections:
        by_name.setdefault(f"<{section.name} {section.text}>", []).append(section)
    return ", ".join(f"{name} ({places(each)})" for name, each in by_name.items())


def _may_be_skipped(block: Directive) -> bool:
    """Whether nothing depends on the block: it has no rule that could deny a request, and nothing
    that Headway follows."""
    inner = block.children or []
    return is_open(inner) and all(
        _may_be_skipped(each) if each.key in (*SCOPES, *CONDITIONS) else is_harmless(each)
        for each in inner
        if each.key not in ACCESS
    )


def _unknown(directive: Directive) -> CommandError:
    others = (other_directives.REFUSED, other_directives.WITHOUT_EFFECT, other_directives.INSTEAD)
    known = {*CHILDREN, *OF_HOST, *SCOPED, *(key for table in others for key in table)}
    close = difflib.get_close_matches(directive.key, known, n=1)
    hint = f"; {close[0]} is the closest" if close else ""
    return directive.refuse("no directive of that name", f"those of mod_wsgi{hint}")


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
