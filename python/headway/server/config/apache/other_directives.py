"""mod_wsgi's directives that Headway refuses or ignores, each with the reason for users. A
directive that is in none of these tables is refused as unknown.

`INSTEAD` says what takes the place of a directive that Headway does not enforce."""

from __future__ import annotations

from typing import NamedTuple

from headway.options import Kind, Whole
from headway.server.config.apache.interpreters import ON_OR_OFF, parse_word
from headway.server.config.apache.syntax import Directive
from headway.server.config.option_types import Text

# Without these directives, requests would be served or allowed against the configuration.
REFUSED = {
    "wsgiscriptaliasmatch": "WSGIScriptAlias, whose paths are no patterns",
    "wsgidispatchscript": "WSGIScriptAlias with process-group=",
    "wsgihandlerscript": "WSGIScriptAlias for each script",
}
HANDLERS = ("addhandler", "sethandler")
_BEFORE = "access control in the application, or in a proxy before it"
INSTEAD = {
    "wsgiaccessscript": _BEFORE,
    "wsgiauthuserscript": _BEFORE,
    "wsgiauthgroupscript": _BEFORE,
    "remoteipheader": "WSGITrustedProxies and WSGITrustedProxyHeaders",
    **dict.fromkeys(HANDLERS, "WSGIScriptAlias for each script"),
}


class Without(NamedTuple):
    """A directive without effect. `so_anyway` is the value that describes what Headway does in any
    case; it needs no warning."""

    kind: Kind
    reason: str
    so_anyway: object = None


_TEXT = Text("TEXT", "some text")
_ENVIRONMENT = "set {} in the environment of headway serve"
_NO_SOCKETS = "processes take requests from the listening sockets themselves"
WITHOUT_EFFECT: dict[str, Without] = {
    "wsgichunkedrequest": Without(ON_OR_OFF, "requests in chunks are always read", True),
    "wsgipassauthorization": Without(ON_OR_OFF, "Authorization always reaches APP", True),
    "wsgimapheadtoget": Without(_TEXT, "HEAD reaches the application as HEAD", "Off"),
    "wsgierroroverride": Without(ON_OR_OFF, "what the application answers is sent", False),
    "wsgienablesendfile": Without(ON_OR_OFF, "files are sent by sendfile where that helps", True),
    "wsgicasesensitivity": Without(ON_OR_OFF, "URL paths are case-sensitive", True),
    "wsgiscriptreloading": Without(
        ON_OR_OFF, "scripts are read again at SIGHUP, or with --reload", False
    ),
    "wsgirestrictprocess": Without(_TEXT, "the process group of a request cannot be chosen"),
    "wsgipassapacherequest": Without(ON_OR_OFF, "there is no Apache request to pass", False),
    "wsgiignoreactivity": Without(ON_OR_OFF, "every request counts", False),
    "wsgigroupauthoritative": Without(ON_OR_OFF, "there are no groups of users here"),
    "wsgiservermetrics": Without(ON_OR_OFF, "there is no scoreboard of Apache's to read", False),
    "wsgidestroyinterpreter": Without(ON_OR_OFF, "the main interpreter ends with its process"),
    "wsgiverbosedebugging": Without(ON_OR_OFF, "there is nothing of the kind here", False),
    "wsgisocketprefix": Without(_TEXT, _NO_SOCKETS),
    "wsgisocketrotation": Without(ON_OR_OFF, _NO_SOCKETS),
    "wsgiacceptmutex": Without(_TEXT, _NO_SOCKETS),
    "wsgipythonoptimize": Without(Whole(0, 2), _ENVIRONMENT.format("PYTHONOPTIMIZE"), 0),
    "wsgidontwritebytecode": Without(
        ON_OR_OFF, _ENVIRONMENT.format("PYTHONDONTWRITEBYTECODE"), False
    ),
    "wsgipythonwarnings": Without(_TEXT, _ENVIRONMENT.format("PYTHONWARNINGS")),
    "wsgipythonhashseed": Without(_TEXT, _ENVIRONMENT.format("PYTHONHASHSEED")),
    "wsgipythoneggs": Without(_TEXT, "Python no longer has eggs"),
    "pidfile": Without(_TEXT, "it is httpd's, which may run; --pid-file is for a file of its own"),
}


def note(directive: Directive) -> str | None:
    """The warning about a directive of `WITHOUT_EFFECT`; `None` if it needs none. Raises
    `CommandError` for a directive that mod_wsgi would refuse, or that Headway refuses."""
    if directive.key in REFUSED:
        raise directive.refuse("it", f"{REFUSED[directive.key]}; this cannot be done here")
    without = WITHOUT_EFFECT[directive.key]
    text = directive.text if without.kind is _TEXT else None
    value = parse_word(directive, without.kind) if text is None else text
    if not directive.words:
        raise directive.refuse("nothing", without.kind.allowed)
    if value == without.so_anyway:
        return None
    return f"{directive.place}: {directive.name} has no effect: {without.reason}"
