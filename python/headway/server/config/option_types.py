"""Kinds of values that only the configuration of `headway serve` uses; see `headway.options`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any

from headway.options import Kind, expect
from headway.server.application_name import parse_object_name


class Text(Kind):
    """Text that matches `pattern`; by default, non-empty text. `allowed` describes it."""

    def __init__(self, metavar: str, allowed: str, pattern: str = r"[^\0\n]+") -> None:
        self.metavar, self.allowed, self._pattern = metavar, allowed, pattern

    def parse(self, text: str) -> str:
        if not re.fullmatch(self._pattern, text):
            raise ValueError
        return text


class Account(Kind):
    """A user or a group. 2**32 - 1 is not a valid id: for chown(2), it means no change."""

    metavar = "NAME"
    allowed = f"a name, or #ID up to #{2**32 - 2}"

    def parse(self, text: str) -> str:
        is_number = re.fullmatch("#[0-9]{1,10}", text) is not None and int(text[1:]) < 2**32 - 1
        if not is_number and not re.fullmatch(r"[^\0\s,:#]+", text):
            raise ValueError
        return text


class Checked(Kind):
    """A value that `parse` returns for the text; it raises `ValueError` for invalid text."""

    def __init__(
        self,
        metavar: str,
        allowed: str,
        parse: Callable[[str], Any],
        show: Callable[[Any], str] = str,
    ) -> None:
        self.metavar, self.allowed, self._parse, self._show = metavar, allowed, parse, show

    def parse(self, text: str) -> Any:
        return self._parse(text)

    def show(self, value: Any) -> str:
        return self._show(value)


class Switch(Kind):
    """True or false. `meaning` is the value that the flag, which takes no argument, sets."""

    metavar = ""
    allowed = "true or false"

    def __init__(self, meaning: bool) -> None:
        self.meaning = meaning

    def parse(self, text: str) -> bool:
        if text.lower() not in ("on", "off"):
            raise ValueError
        return text.lower() == "on"

    def accept(self, value: object) -> bool:
        answer: bool = expect(value, bool)
        return answer

    def show(self, value: bool) -> str:
        return "true" if value else "false"


class Several(Kind):
    """Values of one kind: separated by `separator` in text, a value or a list in TOML. Without a
    separator, the flag is repeated."""

    def __init__(self, kind: Kind, separator: str | None, allowed: str | None = None) -> None:
        self.kind, self.separator = kind, separator
        between = f"{separator}..." if separator else ""
        self.metavar = f"{kind.metavar}[{between}]" if separator else kind.metavar
        self.allowed = allowed or kind.allowed

    def parse(self, text: str) -> tuple[Any, ...]:
        parts = text.split(self.separator or "\0")
        return tuple(self.kind.parse(part.strip()) for part in parts)

    def accept(self, value: object) -> tuple[Any, ...]:
        values = value if isinstance(value, list) else [value]
        return tuple(self.kind.accept(each) for each in values)

    def show(self, value: Sequence[Any]) -> str:
        return (self.separator or " ").join(map(self.kind.show, value))


class AccessLog(Kind):
    """`FORM` or `FORM:PATH`, parsed to the pair of form and path."""

    metavar = "FORM[:PATH]"

    def __init__(self, forms: Sequence[str]) -> None:
        self._forms = forms
        self.allowed = f"{', '.join(forms)}, {', '.join(f'{form}:PATH' for form in forms)} or off"

    def parse(self, text: str) -> tuple[str, str | None]:
        form, colon, path = text.partition(":")
        if text == "off":
            return "off", None
        if form not in self._forms or (colon and not path) or "\0" in path:
            raise ValueError
        return form, path or None

    def show(self, value: tuple[str, str | None]) -> str:
        form, path = value
        return form if path is None else f"{form}:{path}"


def parse_application(text: str) -> str:
    """Checks `module:callable`, whose attribute may be dotted, `module:factory()`, or the path of a
    script file."""
    is_script = "\0" not in text and ("/" in text or text.endswith((".wsgi", ".py")))
    if not is_script and parse_object_name(text) is None:
        raise ValueError
    return text


# mod_wsgi's name for the main interpreter, whose name in `settings` is "".
GLOBAL = "%{GLOBAL}"


def parse_application_group(text: str) -> str:
    """The name of an application group. It has no #, which precedes an interpreter's number."""
    if text == GLOBAL:
        return ""
    is_name = re.fullmatch(r"[^\0-\x1f%#\x7f]+", text)
    if not is_name or text != text.strip():
        raise ValueError
    return text


def show_application_group(name: str) -> str:
    return name or GLOBAL


def parse_network(text: str) -> str:
    """A network in CIDR notation, a single address, or `unix`."""
    return text if text == "unix" else str(ip_network(text, strict=True))


# The header fields from which the native part can read a request's origin.
FORWARDING_FIELDS = (
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
)


def parse_forwarding_field(text: str) -> str:
    """The name in `FORWARDING_FIELDS` that equals the text, ignoring case."""
    for field in FORWARDING_FIELDS:
        if field.lower() == text.lower():
            return field
    raise ValueError


def parse_variable(text: str) -> tuple[str, str]:
    """The name and the value of an environment variable `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals or "\0" in text:
        raise ValueError
    return name, value


# CGI's variables that the server sets for each request, over those of the configuration.
_SET_BY_SERVER = {
    *("CONTENT_LENGTH", "CONTENT_TYPE", "GATEWAY_INTERFACE", "PATH_INFO", "QUERY_STRING"),
    *("REMOTE_ADDR", "REMOTE_PORT", "REQUEST_METHOD", "REQUEST_URI", "SCRIPT_NAME"),
    *("SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL", "SERVER_SOFTWARE"),
}
NOT_SET_BY_SERVER = (
    "a variable that the server does not set for each request, as it does SCRIPT_NAME (which "
    "--mount sets), REMOTE_ADDR, SERVER_NAME and wsgi.url_scheme (which HTTPS=on sets)"
)


def is_set_by_server(name: str) -> bool:
    """Whether a variable of the environ would be overwritten."""
    return name in _SET_BY_SERVER or name.startswith(("wsgi.", "headway."))


def parse_environ_variable(text: str) -> tuple[str, str]:
    """The name and the value of a variable of each request's environ."""
    name, value = parse_variable(text)
    if is_set_by_server(name):
        raise ValueError
    return name, value


def parse_mount(text: str) -> tuple[str, str]:
    """The URL path and the application of `PATH=APP`."""
    path, equals, application = text.partition("=")
    if not equals:
        raise ValueError
    return parse_url_path(path), parse_application(application)


def parse_url_path(text: str) -> str:
    """A URL path in the form of SCRIPT_NAME: "" for the root, no trailing slash."""
    path = text.rstrip("/")
    is_plain = not re.search(r"[\0-\x20?#\x7f]|//|/\.\.?(/|$)", path)
    if not text.startswith("/") or not is_plain:
        raise ValueError
    return path


def parse_page(text: str) -> str:
    """A URL path below the root, as clients send it."""
    path = parse_url_path(text)
    if not path or not path.isascii() or "*" in path:
        raise ValueError
    return path
