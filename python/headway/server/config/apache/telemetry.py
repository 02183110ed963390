"""mod_wsgi's directives for telemetry, which apply to the server as a whole.

Each is allowed at server scope only, and the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headway.options import Seconds
from headway.server.config.apache.interpreters import parse_text, parse_word
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value
from headway.server.config.options import OPTIONS

SERVICE, SLOW_REQUESTS, OPTIONS_DIRECTIVE = (
    "wsgitelemetryservice",
    "wsgislowrequests",
    "wsgitelemetryoptions",
)
TELEMETRY = (SERVICE, SLOW_REQUESTS, OPTIONS_DIRECTIVE)
USER_AGENT = "captureuseragent"


def read_telemetry(directives: Iterable[Directive]) -> dict[str, Value]:
    """The options of the server by name. Raises `CommandError` for values that mod_wsgi would
    refuse."""
    values: dict[str, Value] = {}
    for directive in directives:
        if directive.key == SERVICE:
            values |= _service(directive)
        elif directive.key == SLOW_REQUESTS:
            threshold = parse_word(directive, Seconds(units=False))
            values["slow-requests"] = Value(threshold, directive.place)
        elif directive.key == OPTIONS_DIRECTIVE:
            captures = _captures_user_agent(directive)
            values["capture-user-agent"] = Value(captures, directive.place)
    return values


def _service(directive: Directive) -> dict[str, Value]:
    words = directive.words
    if not words or not re.fullmatch(r"unix:/.+", words[0]):
        raise directive.refuse(words[0] if words else "nothing", "unix:/PATH [interval=SECONDS]")
    path = parse_text(directive, OPTIONS["telemetry"].kind, words[0])
    values = {"telemetry": Value(path, directive.place)}
    for name, text in directive.options(1):
        if name != "interval" or len(words) > 2:
            raise directive.refuse(f"{name}={text}", "interval=SECONDS, once")
        interval = parse_text(directive, Seconds(0.5, units=False), text)
        values["telemetry-interval"] = Value(interval, directive.place)
    return values


def _captures_user_agent(directive: Directive) -> bool:
    """httpd's rule for Options: absolute names, or ones with a sign, and not both. There is one
    option, so the last word decides."""
    words = [word.lower() for word in directive.words]
    signed = [re.fullmatch(r"[+-]captureuseragent", word) is not None for word in words]
    plain = [word in ("none", "all", USER_AGENT) for word in words]
    if not words or not (all(signed) or all(plain)):
        allowed = "None, All, CaptureUserAgent, or +CaptureUserAgent and -CaptureUserAgent"
        raise directive.refuse(directive.text or "nothing", allowed)
    return words[-1] != "none" and not words[-1].startswith("-")
