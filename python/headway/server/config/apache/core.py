"""The directives of httpd itself that Headway uses, and the options that each sets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from headway.options import Kind, Whole
from headway.server.config.apache.interpreters import parse_word
from headway.server.config.apache.syntax import Directive
from headway.server.config.configuration import Value
from headway.server.config.option_types import Checked
from headway.server.config.options import OPTIONS, PROXY_HEADERS
from headway.server.settings import LOG_FORMS, HttpLimits

LIMITS = HttpLimits()


def _parse_timeout(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,8})(ms|s|min|h)?", text)
    if not found or int(found[1]) == 0:
        raise ValueError
    return int(found[1]) * {"ms": 0.001, "min": 60.0, "h": 3600.0}.get(found[2] or "s", 1.0)


_TIMEOUT = Checked("S", "a time above 0 in seconds, or with ms, s, min or h", _parse_timeout)


class Core(NamedTuple):
    """A directive with one word: the options that it sets, and the conversion of the word."""

    options: tuple[str, ...]
    kind: Kind
    make: Callable[[Any], Any] = lambda value: value


CORE: dict[str, Core] = {
    "timeout": Core(("body-timeout", "write-timeout"), _TIMEOUT),
    "keepalivetimeout": Core(("keep-alive-timeout",), _TIMEOUT),
    "limitrequestline": Core(("max-target-size",), Whole(256, 2**20)),
    # In httpd 0 removes the limit. Headway always has one, so 0 sets the highest.
    "limitrequestfields": Core(
        ("max-fields",), Whole(0, 10_000), lambda count: 10_000 if count == 0 else count
    ),
    # In httpd this limits one field, to 8,190 bytes by default. In Headway it limits the whole
    # head, which contains the field, so that a lower limit would not hold.
    "limitrequestfieldsize": Core(
        ("max-head-size",), Whole(8190, 2**24), lambda size: max(size, LIMITS.max_head_bytes)
    ),
    "limitrequestbody": Core(("max-body-size",), Whole(0, 2**62)),
    "listenbacklog": Core(("listen-backlog",), Whole(1, 2**31 - 1)),
    "user": Core(("user",), OPTIONS["user"].kind),
    "group": Core(("group",), OPTIONS["group"].kind),
}
# These directives are allowed only in the main server.
SERVER_ONLY = ("listenbacklog", "user", "group")

# The formats in the httpd.conf that httpd ships. Debian's counts bytes with %O.
_COMMON = r'%h %l %u %t "%r" %>s %[bO]'
LOG_FORMATS = (
    ("common", re.compile(_COMMON)),
    ("combined", re.compile(_COMMON + r' "%\{Referer\}i" "%\{User-Agent\}i"', re.IGNORECASE)),
)


def read_core(directive: Directive) -> dict[str, Value]:
    """The values of options, by name, that a directive of `CORE` gives."""
    if "${" in directive.text:
        raise directive.refuse(directive.text, "a variable that Define or the environment sets")
    core = CORE[directive.key]
    value = core.make(parse_word(directive, core.kind))
    return {name: Value(value, directive.place) for name in core.options}


def read_proxy_headers(directive: Directive) -> tuple[tuple[str, ...], list[str]]:
    """The supported fields of WSGITrustedProxyHeaders, and a warning about the others."""
    names, others = [], []
    for word in directive.words:
        try:
            names.append(PROXY_HEADERS.kind.parse(word))
        except ValueError:
            others.append(word)
    allowed = PROXY_HEADERS.kind.allowed
    warning = (
        f"{directive.place}: {directive.name}: left out: {', '.join(others)}; there are {allowed}"
    )
    return tuple(names), [warning] if others else []


def read_log(directive: Directive, formats: dict[str, str], server_root: str) -> Value | None:
    """The access log of a CustomLog with two words. `None` if the directive has another form or a
    format that Headway does not write."""
    if len(directive.words) != 2 or directive.words[0].startswith("|") or "${" in directive.text:
        return None
    path, form = directive.words
    text = formats.get(form, form)
    for name, pattern in LOG_FORMATS:
        if (text == name or pattern.fullmatch(text)) and name in LOG_FORMS:
            return Value((name, os.path.join(server_root, path)), directive.place)
    return None
