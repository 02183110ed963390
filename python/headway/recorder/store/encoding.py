"""The encoding of ticks and rollups in the store: compressed, the ticks of a minute together. Pure.

a rollup:   zlib(record)
a minute:   zlib of, for each tick, time f64, length u32, record
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

# Higher compression levels take longer and save hardly any space.
MINUTE_LEVEL = 1
RECORD_LEVEL = 3
HEAD = struct.Struct("<dI")
MAX_UNPACKED_BYTES = 64 * 1024 * 1024


class Damaged(Exception):
    """A row of the store is corrupt."""


def pack_record(record: bytes) -> bytes:
    return zlib.compress(record, RECORD_LEVEL)


def unpack_record(packed: bytes) -> bytes:
    return unpack(packed)


def pack_ticks(ticks: Iterable[tuple[float, bytes]]) -> bytes:
    pieces = []
    for time, record in ticks:
        pieces += [HEAD.pack(time, len(record)), record]
    return zlib.compress(b"".join(pieces), MINUTE_LEVEL)


def unpack_ticks(packed: bytes) -> Iterator[tuple[float, bytes]]:
    """Yields the time and record of each tick. Raises `Damaged`."""
    raw = unpack(packed)
    offset = 0
    while offset < len(raw):
        try:
            time, length = HEAD.unpack_from(raw, offset)
        except struct.error:
            raise Damaged from None
        offset += HEAD.size
        if offset + length > len(raw):
            raise Damaged
        yield time, raw[offset : offset + length]
        offset += length


def unpack(packed: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        raw = decompressor.decompress(packed, MAX_UNPACKED_BYTES)
    except zlib.error:
        raise Damaged from None
    if not decompressor.eof:
        raise Damaged
    return raw
