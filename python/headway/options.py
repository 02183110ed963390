"""Types of option values: durations, sizes, counts, permissions, policies, paths of sockets.

Every verb, TOML file and Apache file accepts and rejects the same literals with the same messages.
A `Kind` parses text, or accepts a value of TOML's own types, and raises `ValueError` for a value
that it does not allow.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from headway.meter import engine
from headway.meter.reporter import MIN_INTERVAL_S

# `headway run` imports this module and starts quickly, see headway.cli.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from re import Match
    from typing import Any, TypeVar

    from headway.address import Address

    Value = TypeVar("Value")

# About two years. A longer time is a mistake; the nanoseconds of this limit fit in 64 bits.
MAX_SECONDS = 60_000_000
MAX_BYTES = 2**62
# Seconds as a fraction: 50 / 10**6 is the float nearest to 50 us, and 50 * 1e-6 is not.
DURATION_UNITS = {
    "us": (1, 1_000_000),
    "ms": (1, 1_000),
    "s": (1, 1),
    "m": (60, 1),
    "h": (3_600, 1),
    "d": (86_400, 1),
}
# A letter alone is binary, as in nginx and systemd; MB is decimal and MiB binary (IEC 80000).
BYTE_UNITS = {
    f"{letter}{suffix}": base ** (power + 1)
    for power, letter in enumerate("kmgt")
    for suffix, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
# The size of sun_path (unix(7)) without the terminating zero byte.
MAX_SOCKET_PATH_BYTES = 107


class Kind(ABC):
    """A type of option values. `metavar` is its name in help; errors end with `allowed`."""

    metavar: str
    allowed: str

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Returns the value of `text`; raises `ValueError` if it is not allowed."""

    def accept(self, value: object) -> Any:
        """Returns the option's value for a TOML value; raises `ValueError` if it is not allowed."""
        return self.parse(expect(value, str))

    def show(self, value: Any) -> str:
        """Returns the shortest text that `parse` accepts for `value`."""
        return str(value)


class Whole(Kind):
    """A whole number: digits and nothing after them."""

    metavar = "N"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self.allowed = f"a whole number from {low} to {high}"

    def parse(self, text: str) -> int:
        if not _fullmatch(r"-?[0-9]{1,18}", text):
            raise ValueError
        return self.accept(int(text))

    def accept(self, value: object) -> int:
        number: int = expect(value, int)
        if not self._low <= number <= self._high:
            raise ValueError
        return number


class Seconds(Kind):
    """A time in seconds or with a unit: 0.5, 50us, 500ms, 2m."""

    metavar = "S"

    def __init__(self, low: float = 0, high: float = MAX_SECONDS, units: bool = True) -> None:
        self._low, self._high, self._units = low, high, units
        least = f"{low:.9f}".rstrip("0").rstrip(".")
        self.allowed = f"a number of seconds from {least} to {high:g}"
        if units:
            self.allowed += ", or with a unit, as 500ms"

    def parse(self, text: str) -> float:
        found = _fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e-?[0-9]{1,2})?(us|ms|s|m|h|d)?", text)
        if not found or (found[3] and not self._units):
            raise ValueError
        seconds, parts = DURATION_UNITS[found[3] or "s"]
        return self.accept(float(found[1] + (found[2] or "")) * seconds / parts)

    def accept(self, value: object) -> float:
        if isinstance(value, str):
            return self.parse(value)
        seconds = float(expect(value, int, float))
        if not self._low <= seconds <= self._high:
            raise ValueError
        return seconds

    def show(self, value: float) -> str:
        return f"{value:.9f}".rstrip("0").rstrip(".")


class Bytes(Kind):
    """A number of bytes, optionally with a unit: 64k and 64KiB are 65,536, 64kB is 64,000."""

    metavar = "BYTES"

    def __init__(self, low: int = 0, high: int = MAX_BYTES, or_zero: bool = False) -> None:
        self._low, self._high, self._or_zero = low, high, or_zero
        ends = f"from {low}" if high == MAX_BYTES else f"from {low} to {high}"
        zero = "0 or " if or_zero else ""
        self.allowed = f"{zero}a number of bytes {ends}, or with a unit, as 64k or 10M"

    def parse(self, text: str) -> int:
        found = _fullmatch(r"([0-9]{1,19})([kmgt]i?b?)?", text.lower())
        if not found or (found[2] or "k") not in BYTE_UNITS:
            raise ValueError
        return self.accept(int(found[1]) * BYTE_UNITS.get(found[2], 1))

    def accept(self, value: object) -> int:
        if isinstance(value, str):
            return self.parse(value)
        count: int = expect(value, int)
        if not (self._low <= count <= self._high or (self._or_zero and count == 0)):
            raise ValueError
        return count


class Octal(Kind):
    """Permission bits. In TOML they are a string, because 22 and 0o22 are different numbers."""

    metavar = "OCTAL"
    allowed = 'permission bits in octal digits from 0 to 777, in quotes in a TOML file, as "022"'

    def parse(self, text: str) -> int:
        if not _fullmatch(r"0*[0-7]{1,3}", text):
            raise ValueError
        return int(text, 8)

    def show(self, value: int) -> str:
        return f"{value:03o}"


class Policy(Kind):
    """A policy of the extension module."""

    metavar = "P"

    @property
    def allowed(self) -> str:  # type: ignore[override]
        return f"one of {', '.join(engine.policies())}"

    def parse(self, text: str) -> str:
        if text not in engine.policies():
            raise ValueError
        return text


class Percentage(Kind):
    """A number of percent: 5, 2.5."""

    metavar = "PERCENT"

    def __init__(self, most: int) -> None:
        self._most = most
        self.allowed = f"a percentage from 0 to {most}"

    def parse(self, text: str) -> float:
        if not _fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?", text) or float(text) > self._most:
            raise ValueError
        return float(text)


class Shape(Kind):
    """Processes and threads of a server: 2x5."""

    metavar = "PxT"

    def __init__(self, most: int) -> None:
        self._count = Whole(1, most)
        self.allowed = f"PROCESSESxTHREADS, each from 1 to {most}, such as 2x5"

    def parse(self, text: str) -> tuple[int, int]:
        processes, _, threads = text.partition("x")
        return self._count.parse(processes), self._count.parse(threads)

    def show(self, value: tuple[int, int]) -> str:
        return f"{value[0]}x{value[1]}"


class SocketPath(Kind):
    """The path of a UNIX socket, as unix:PATH."""

    PREFIX = "unix:"
    metavar = "unix:PATH"
    allowed = f"unix:PATH, with a path of up to {MAX_SOCKET_PATH_BYTES} bytes"

    def parse(self, text: str) -> str:
        path = text.removeprefix(self.PREFIX)
        is_path = text.startswith(self.PREFIX) and path and not {"\0", "\n"} & set(path)
        if not is_path or not fits_socket(path):
            raise ValueError
        return path

    def show(self, value: str) -> str:
        return self.PREFIX + value


class RecorderSocket(SocketPath):
    """The path of a recorder's socket, made absolute: the program may change its directory."""

    def parse(self, text: str) -> str:
        path = os.path.abspath(super().parse(text))
        if not fits_socket(path):
            raise ValueError
        return path


def fits_socket(path: str) -> bool:
    """Whether the address of a UNIX socket has room for `path`."""
    return len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES


class GroupName(Kind):
    """The name of a process group in reports. It can be a word of the variable HEADWAY."""

    metavar = "NAME"
    allowed = "1 to 64 printable characters, none of them a comma"

    def parse(self, text: str) -> str:
        if not 1 <= len(text) <= 64 or not text.isprintable() or "," in text:
            raise ValueError
        return text


class ListenAddress(Kind):
    """HOST:PORT, unix:PATH, or if `inherited` is true, fd://N from a service manager."""

    def __init__(self, inherited: bool = False, local: bool = False) -> None:
        self._inherited, self._local = inherited, local
        self.metavar = "HOST:PORT" if local else "HOST:PORT | unix:PATH"
        self.allowed = "HOST:PORT with a port from 0 to 65535, or unix:PATH"
        if local:
            self.allowed = "HOST:PORT, the host localhost or a loopback address"

    def parse(self, text: str) -> Address:
        from headway.address import parse_address

        address = parse_address(text)
        is_inherited = address.fd is not None and not self._inherited
        if is_inherited or (self._local and not address.is_local):
            raise ValueError
        return address


# CPython keeps the switch interval in whole microseconds.
SWITCH_INTERVAL = Seconds(1e-6, 1000)
# CPython's own.
DEFAULT_SWITCH_INTERVAL_S = 0.005
LOOP_LIMIT = Seconds(0.001, 1000)
TELEMETRY_INTERVAL = Seconds(MIN_INTERVAL_S, 86_400)


def each_once(values: Iterable[Value] | None) -> tuple[Value, ...] | None:
    """The values without duplicates, in the order given; None if there are none."""
    return tuple(dict.fromkeys(values)) if values else None


def argument(kind: Kind) -> Callable[[str], Any]:
    """Returns the `type` of an argparse argument of this kind."""

    def parse(text: str) -> Any:
        try:
            return kind.parse(text)
        except ValueError:
            import argparse

            raise argparse.ArgumentTypeError(refusal(repr(text), kind)) from None

    return parse


def refusal(found: str, kind: Kind) -> str:
    """Returns the error for a value that `kind` does not allow, without its place."""
    return f"found {found}; allowed: {kind.allowed}"


def _fullmatch(pattern: str, text: str) -> Match[str] | None:
    import re

    return re.fullmatch(pattern, text)


def expect(value: object, *types: type) -> Any:
    """Returns `value` if it has one of `types`. A bool does not count as a number."""
    if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
        return value
    raise ValueError
