"""Kinds of values that a configuration is made of: what each allows, and what it makes of text.

A kind is given text (of a flag, of an Apache file) or a value of TOML's own types, and answers with
the value for `settings`, or raises `ValueError`. Knows nothing of who sets what. Pure.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any

from headway import gil
from headway.server.binding import Address, parse_address

# Some two years: what lies above is a slip, and nanoseconds of it fit in 64 bits.
MAX_SECONDS = 60_000_000
MAX_BYTES = 2**62
DURATION_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
BYTE_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class Kind(ABC):
    """One kind of value. `metavar` stands for it in help, `allowed` completes "it must be ..."."""

    metavar: str
    allowed: str

    @abstractmethod
    def parse(self, text: str) -> Any:
        """The value that `text` stands for; `ValueError` if it is not allowed."""

    def accept(self, value: object) -> Any:
        """The same from a value of TOML's."""
        return self.parse(_expect(value, str))

    def show(self, value: Any) -> str:
        """`value` as a person would write it."""
        return str(value)


class Whole(Kind):
    """A whole number: digits and nothing after them."""

    metavar = "N"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self.allowed = f"a whole number from {low} to {high}"

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise ValueError
        return self.accept(int(text))

    def accept(self, value: object) -> int:
        number: int = _expect(value, int)
        if not self._low <= number <= self._high:
            raise ValueError
        return number


class Seconds(Kind):
    """A time in seconds, or with a unit: 0.5, 500ms, 2m. Finite, and no hexadecimal."""

    metavar = "S"

    def __init__(self, low: float = 0, high: float = MAX_SECONDS, units: bool = True) -> None:
        self._low, self._high, self._units = low, high, units
        least = f"{low:f}".rstrip("0").rstrip(".")
        self.allowed = f"a number of seconds from {least} to {high:.0f}"
        if units:
            self.allowed += ", or with a unit, as 500ms"

    def parse(self, text: str) -> float:
        found = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e-?[0-9]{1,2})?(ms|s|m|h|d)?", text)
        if not found or (found[3] and not self._units):
            raise ValueError
        return self.accept(float(found[1] + (found[2] or "")) * DURATION_UNITS[found[3] or "s"])

    def accept(self, value: object) -> float:
        if isinstance(value, str):
            return self.parse(value)
        seconds = float(_expect(value, int, float))
        if not math.isfinite(seconds) or not self._low <= seconds <= self._high:
            raise ValueError
        return seconds

    def show(self, value: float) -> str:
        return f"{value:.9f}".rstrip("0").rstrip(".")


class Bytes(Kind):
    """A number of bytes, or with a unit of 1024: 64k, 10M."""

    metavar = "BYTES"

    def __init__(self, low: int = 0, high: int = MAX_BYTES, or_zero: bool = False) -> None:
        self._low, self._high, self._or_zero = low, high, or_zero
        ends = f"from {low}" if high == MAX_BYTES else f"from {low} to {high}"
        zero = "0 or " if or_zero else ""
        self.allowed = f"{zero}a number of bytes {ends}, or with a unit, as 64k or 10M"

    def parse(self, text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,19})(?:([kmgt])(?:i?b)?)?", text.lower())
        if not found:
            raise ValueError
        return self.accept(int(found[1]) * BYTE_UNITS.get(found[2], 1))

    def accept(self, value: object) -> int:
        if isinstance(value, str):
            return self.parse(value)
        count: int = _expect(value, int)
        if not (self._low <= count <= self._high or (self._or_zero and count == 0)):
            raise ValueError
        return count


class Octal(Kind):
    """Permission bits. In TOML a string, since 22 and 0o22 there are not the same number."""

    metavar = "OCTAL"
    allowed = 'permission bits in octal digits from 0 to 777, in quotes in a TOML file, as "022"'

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"0*[0-7]{1,3}", text):
            raise ValueError
        return int(text, 8)

    def show(self, value: int) -> str:
        return f"{value:03o}"


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
        answer: bool = _expect(value, bool)
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


class Policy(Kind):
    """Which there are is known to the extension module alone."""

    metavar = "P"

    @property
    def allowed(self) -> str:  # type: ignore[override]
        return f"one of {', '.join(gil.policies())}"

    def parse(self, text: str) -> str:
        if text not in gil.policies():
            raise ValueError
        return text


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


def parse_local_address(text: str) -> Address:
    """Of a site that asks nobody who they are."""
    address = parse_address(text)
    if not address.is_local:
        raise ValueError
    return address


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


def _expect(value: object, *types: type) -> Any:
    """`value` if it is of one of `types`; a bool is no number."""
    if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
        return value
    raise ValueError
