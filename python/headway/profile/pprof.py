"""A profile in pprof's format: `go tool pprof`, Pyroscope and others read it.

The format is the protocol buffer `perftools.profiles.Profile`, compressed by gzip
(https://github.com/google/pprof/blob/main/proto/profile.proto). The numbers of its fields are in
the code as it writes them. Both sides are in one file, as types of samples.
"""

from __future__ import annotations

import zlib

from headway import _native
from headway.profile import sides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.profile.model import Frame, Profile
    from headway.profile.sides import Charge, Stack

# Each sample has one value for each of these.
SAMPLE_TYPES = (
    ("delay_holders", "nanoseconds"),
    ("delay_waiters", "nanoseconds"),
    ("readings_holders", "count"),
    ("readings_waiters", "count"),
)
# A window of zlib that also writes the header and the trailer of gzip, without a time.
GZIP = 31


def encode(profile: Profile) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, GZIP)
    return compressor.compress(_Encoder().encode(profile)) + compressor.flush()


_BYTES = [bytes([value]) for value in range(0x80)]


class _Encoder:
    """Numbers strings, functions and locations in the order in which samples name them."""

    def __init__(self) -> None:
        self.strings = {"": 0}
        self.functions: dict[tuple[str, str], int] = {}
        self.locations: dict[Frame, int] = {}
        # Parts of samples that many samples have in common, encoded.
        self.stacks: dict[Stack, bytes] = {}
        self.labels: dict[tuple[str, str], bytes] = {}

    def encode(self, profile: Profile) -> bytes:
        encoded = bytearray()
        for name, unit in SAMPLE_TYPES:
            encoded += _part(1, self.value_type(name, unit))
        both = sides.present(profile)
        for side, charges in both.items():
            for charge in charges:
                encoded += _part(2, self.sample(charge, side))
        # pprof would look for a program to read symbols from if no mapping had them.
        encoded += _part(3, _number(1, 1) + b"".join(_number(field, 1) for field in (7, 8, 9)))
        for frame, number in self.locations.items():
            line = _number(1, self.function(frame)) + _number(2, frame.line)
            encoded += _part(4, _number(1, number) + _number(2, 1) + _part(4, line))
        for (function, file), number in self.functions.items():
            # Without a system name (field 3): where that is equal to the name, pprof takes both for
            # C++ and cuts out `<lambda>` as a template's argument.
            members = ((1, number), (2, self.string(function)), (4, self.string(file)))
            encoded += _part(5, b"".join(_number(*member) for member in members))
        encoded += _number(9, profile.began_ns) + _number(10, profile.wall_ns)
        encoded += _part(11, self.value_type(*SAMPLE_TYPES[0])) + _number(12, 1)
        for comment in (
            f"program: {profile.program}",
            f"pid: {profile.pid}",
            f"written by: {_native.SERVER_SOFTWARE}",
        ):
            encoded += _key(13, 0) + _varint(self.string(comment))
        default = SAMPLE_TYPES[0 if sides.HOLDERS in both else 1][0]
        encoded += _number(14, self.string(default))
        # The strings come last, when all are known.
        for text in self.strings:
            encoded += _part(6, text.encode("utf-8", "backslashreplace"))
        return bytes(encoded)

    def value_type(self, name: str, unit: str) -> bytes:
        return _number(1, self.string(name)) + _number(2, self.string(unit))

    def sample(self, charge: Charge, side: str) -> bytes:
        holds = side == sides.HOLDERS
        figures = (charge.waited_ns, charge.readings)
        values = [value for each in figures for value in ((each, 0) if holds else (0, each))]
        labels = {
            "side": side,
            "gil": charge.gil,
            "thread": charge.thread,
            "waiter": charge.waiter,
            "end": charge.end,
        }
        parts = [self.stack(charge.stack), _packed(2, values)]
        parts += [self.label(*item) for item in labels.items() if item[1]]
        return b"".join(parts)

    def stack(self, stack: Stack) -> bytes:
        encoded = self.stacks.get(stack)
        if encoded is None:
            locations = self.locations
            numbers = [locations.setdefault(frame, len(locations) + 1) for frame in reversed(stack)]
            encoded = self.stacks[stack] = _packed(1, numbers)
        return encoded

    def label(self, key: str, text: str) -> bytes:
        encoded = self.labels.get((key, text))
        if encoded is None:
            members = _number(1, self.string(key)) + _number(2, self.string(text))
            encoded = self.labels[key, text] = _part(3, members)
        return encoded

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def function(self, frame: Frame) -> int:
        return self.functions.setdefault(frame[:2], len(self.functions) + 1)


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _BYTES[value]
    # A negative int64 is written as the uint64 with the same bits.
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _number(field: int, value: int) -> bytes:
    """An integer; 0 is the default and needs no bytes."""
    return _key(field, 0) + _varint(value) if value else b""


def _part(field: int, encoded: bytes) -> bytes:
    """A string or an embedded message."""
    return _key(field, 2) + _varint(len(encoded)) + encoded


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _part(field, b"".join(map(_varint, values)))
