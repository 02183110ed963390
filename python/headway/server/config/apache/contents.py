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
from headway.server.config.apache.access import ACCESS, AUTHENTICATION, is_open, other_children
from headway.server.config.apache.daemon import Daemon, read_daemon
from headway.server.config.apache.harmless import is_harmless
from headway.server.config.apache.hosts import SCOPED, Host
from headway.server.config.apache.interpreters import CHILDREN, Interpreters
from headway.server.config.apache.reading import CONDITIONS, read_file
from headway.server.config.apache.sections import CONDITION, SCOPES, Scoped
from headway.server.config.apache.syntax import Directive, list_by_name
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
    *("allowencodedslashes", "mergeslashes"),
    *("wsgidaemonprocess", "wsgiscriptalias", "wsgipythonhome", "wsgirestrictembedded"),
    *("wsgitrustedproxies", "wsgitrustedproxyheaders", "wsgiimportscript"),
    *TELEMETRY,
    *request_variables.KEYS,
}
# Headway reads these by the sections that they are in.
BY_SECTION = {
    *(*SCOPED, *ACCESS, AUTHENTICATION),
    *("allowoverride", "allowoverridelist", "options"),
}


@dataclass
class Contents:
    """The contents of a configuration. `formats` has the formats of LogFormat by name. `warnings`
    are in the order of the file."""

    path: str
    server_root: str
    # Whether httpd may have any module or not.
    is_part: bool = False
    # The sections for modules that are taken as loaded.
    assumed: list[Directive] = field(default_factory=list)
    main: Host = field(default_factory=Host)
    virtual_hosts: list[Host] = field(default_factory=list)
    daemons: dict[str, Daemon] = field(default_factory=dict)
    interpreters: Interpreters = field(default_factory=Interpreters)
    formats: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> tuple[Host, ...]:
        return (self.main, *self.virtual_hosts)

    @property
    def listens(self) -> list[Directive]:
        return [each for each in self.main.directives if each.key == "listen"]

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
        """The names of the files that httpd may read beside the files that it serves."""
        found = [
            name
            for host in self.hosts
            for directive in host.directives
            if directive.key == "accessfilename"
            for name in directive.words
        ]
        return [".htaccess", *found]


def read_contents(path: str, files: ConfigurationFiles) -> Contents:
    reader, directives = read_file(path, files)
    contents = Contents(path, reader.server_root, is_part=reader.is_part)
    _sort(contents, directives, contents.main)
    _read_daemons(contents)
    assumed = [each for each in contents.assumed if not _may_be_skipped(each)]
    if assumed:
        contents.warnings.append(
            f"{path}: a part of a configuration; taken as loaded: {_named(assumed)}"
        )
    skipped = [each for each in reader.skipped if not _may_be_skipped(each)]
    if skipped:
        contents.warnings.append(
            f"{path}: skipped, since no LoadModule names the module: {_named(skipped)}"
        )
    return contents


def _sort(
    contents: Contents,
    directives: list[Directive],
    host: Host,
    sections: tuple[Directive, ...] = (),
) -> None:
    for directive in directives:
        key, scoped = directive.key, Scoped(directive, sections)
        scopes, is_lack = (
            scoped.scopes,
            any(each.key == CONDITION and each.text.startswith("!") for each in sections),
        )
        if "${" in directive.text and (directive.children is not None or _is_followed(key)):
            raise directive.refuse(
                directive.text,
                "a variable that Define or the environment sets, since httpd may know it; Debian's "
                "are in /etc/apache2/envvars",
            )
        if key in SERVER_ONLY and host is not contents.main:
            raise directive.refuse("it in <VirtualHost>", "at server scope alone")
        if scopes and (key == "wsgiscriptalias" or key in SERVER_ONLY):
            raise directive.refuse(f"it in {scopes[-1].shown}", "outside of such sections")
        if key == CONDITION and contents.is_part:
            if not directive.text.startswith("!"):
                contents.assumed.append(directive)
            _sort(contents, directive.children or [], host, (*sections, directive))
        elif key in SCOPES and directive.children is not None:
            _sort(contents, directive.children, host, (*sections, directive))
        elif key in BY_SECTION or (scopes and key == "limitrequestbody"):
            host.scoped.append(scoped)
            if key in ACCESS:
                _sort(contents, other_children(directive), host, sections)
        elif is_lack and not is_harmless(directive):
            host.unfollowed.append(scoped)
        elif key == "virtualhost":
            if scopes or host is not contents.main or not directive.words:
                raise directive.refuse("it", "at server scope, with ADDRESS:PORT")
            contents.virtual_hosts.append(Host(directive))
            _sort(contents, directive.children or [], contents.virtual_hosts[-1])
        elif key == "wsgiinterpreteroptions" or key in CHILDREN:
            contents.interpreters.add(directive)
        elif key == "logformat" and len(directive.words) == 2:
            contents.formats[directive.words[1]] = directive.words[0]
        elif key in OF_HOST and not scopes:
            host.directives.append(directive)
        elif key in other_directives.WITHOUT_EFFECT or key in other_directives.REFUSED:
            if (warning := other_directives.note(directive)) is not None:
                contents.warnings.append(warning)
        elif key in CONDITIONS:
            if not _may_be_skipped(directive):
                host.unfollowed.append(scoped)
        elif key.startswith("wsgi") and key not in (*OF_HOST, *other_directives.INSTEAD):
            raise _unknown(directive)
        elif not is_harmless(directive) or (scopes and key == "sslciphersuite"):
            host.unfollowed.append(scoped)


def _is_followed(key: str) -> bool:
    # A log that is nowhere denies nothing.
    return key != "customlog" and (key in BY_SECTION or key in OF_HOST or key in CHILDREN)


def _named(sections: list[Directive]) -> str:
    return list_by_name((f"<{each.name} {each.text}>", each) for each in sections)


def _may_be_skipped(block: Directive) -> bool:
    """Whether nothing that Headway follows or refuses depends on the block."""
    return all(
        _may_be_skipped(each)
        if each.key in (*SCOPES, *CONDITIONS)
        else is_harmless(each) or (each.key == "require" and is_open([each]))
        for each in block.children or []
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
