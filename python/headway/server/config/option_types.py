"""Kinds of values that only a configuration of `headway serve` has; see `headway.options`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any

from headway.options import Kind, expect


class Text(Kind):
    """Anything but nothing. `allowed` says what is meant, `pattern` what it must look like."""

    def __init__(self, metavar: str, allowed: str, pattern: str = r"[^\0\n]+") -> None:
        self.metavar, self.allowed, self._pattern = metavar, allowed, pattern

    def parse(self, text: str) -> str:
        if not re.fullmatch(self._pattern, text):
            raise ValueError
        return text


class Account(Kind):
    """A user or a group. The last number of 32 bits is none: chown(2) takes it for no change."""

    metavar = "NAME"
    allowed = f"a name, or #ID up to #{2**32 - 2}"

    def parse(self, text: str) -> str:
        is_number = re.fullmatch("#[0-9]{1,10}", text) is not None and int(text[1:]) < 2**32 - 1
        if not is_number and not re.fullmatch(r"[^\0\s,:#]+", text):
            raise ValueError
        return text


class Checked(Kind):
    """What a function of the caller's makes of the text; it raises `ValueError`."""

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
    """Yes or no. `meaning` is what the flag, which takes no argument, stands for."""

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
    """Values of one kind: in text with `separator` between them, in TOML one or a list."""

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
    """`FORM` or `FORM:PATH`, as the pair of both."""

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
    """`module:callable`, the attribute dotted if need be, or the path of a script file."""
    module, colon, attributes = text.partition(":")
    is_script = "/" in text or text.endswith((".wsgi", ".py"))
    # No empty part: what is imported is no relative name.
    is_object = all(module.split(".")) and all(map(str.isidentifier, attributes.split(".")))
    if "\0" in text or not (is_script or (colon and is_object)):
        raise ValueError
    return text


# mod_wsgi's name for the main interpreter, which is "" in `settings`.
GLOBAL = "%{GLOBAL}"


def parse_application_group(text: str) -> str:
    """The name of an application group. Interpreters are numbered after a #."""
    if text == GLOBAL:
        return ""
    is_name = re.fullmatch(r"[^\0-\x1f%#\x7f]+", text)
    if not is_name or text != text.strip():
        raise ValueError
    return text


def show_application_group(name: str) -> str:
    return name or GLOBAL


def parse_network(text: str) -> str:
    """A network in CIDR form, a single address, or `unix`."""
    return text if text == "unix" else str(ip_network(text, strict=True))


# What the native part can read of a request's origin.
FORWARDING_FIELDS = (
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
)


def parse_forwarding_field(text: str) -> str:
    """A field name in any case."""
    for field in FORWARDING_FIELDS:
        if field.lower() == text.lower():
            return field
    raise ValueError


def parse_variable(text: str) -> tuple[str, str]:
    """`NAME=VALUE` of the environment."""
    name, equals, value = text.partition("=")
    if not name or not equals or "\0" in text:
        raise ValueError
    return name, value


def parse_mount(text: str) -> tuple[str, str]:
    """`PATH=APP`: an application and the URL path below which it lives."""
    path, equals, application = text.partition("=")
    if not equals:
        raise ValueError
    return parse_url_path(path), parse_application(application)


def parse_url_path(text: str) -> str:
    """A URL path as SCRIPT_NAME has it: "" for the root, no slash at the end."""
    path = text.rstrip("/")
    is_plain = not re.search(r"[\0-\x20?#\x7f]|//|/\.\.?(/|$)", path)
    if not text.startswith("/") or not is_plain:
        raise ValueError
    return path
