"""Decodes pprof's protocol buffer as far as Headway writes it, from its definition alone."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """`stack` has (function, file, line), the outermost first; `values` are by sample type."""

    stack: tuple[tuple[str, str, int], ...]
    values: dict[str, int]
    labels: dict[str, str]


class Decoded(NamedTuple):
    samples: list[Sample]
    sample_types: list[tuple[str, str]]
    default: str
    comments: list[str]
    time_ns: int
    duration_ns: int


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: an int for wire type 0, bytes for wire type 2."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2), "no other wire type is written"
        value, at = varint(data, at)
        if key & 7 == 2:
            part = data[at : at + value]
            assert len(part) == value
            at += value
            yield key >> 3, part
        else:
            yield key >> 3, value


def unpacked(data: bytes) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value - (1 << 64) if value >> 63 else value)
    return values


def decode(data: bytes) -> Decoded:
    found: dict[int, list[Any]] = {}
    for field, value in fields(gzip.decompress(data)):
        found.setdefault(field, []).append(value)
    strings = [text.decode() for text in found[6]]
    assert strings[0] == ""
    assert len(set(strings)) == len(strings)
    types = []
    for each in found[1]:
        members = dict(fields(each))
        types.append((strings[members[1]], strings[members[2]]))
    functions = {}
    for each in found.get(5, []):
        members = dict(fields(each))
        functions[members[1]] = (strings[members.get(2, 0)], strings[members.get(4, 0)])
    mappings = {dict(fields(each))[1] for each in found[3]}
    locations = {}
    for each in found.get(4, []):
        members = dict(fields(each))
        assert members[2] in mappings
        line = dict(fields(members[4]))
        locations[members[1]] = (*functions[line[1]], unpacked_line(line.get(2, 0)))
    samples = []
    for each in found.get(2, []):
        members = [*fields(each)]
        numbers = {field: value for field, value in members if field != 3}
        labels = [dict(fields(value)) for field, value in members if field == 3]
        stack = tuple(locations[number] for number in reversed(unpacked(numbers[1])))
        values = dict(zip((name for name, _ in types), unpacked(numbers[2]), strict=True))
        samples.append(Sample(stack, values, {strings[x[1]]: strings[x[2]] for x in labels}))
    return Decoded(
        samples,
        types,
        strings[found[14][0]],
        [strings[number] for number in found[13]],
        found.get(9, [0])[0],
        found.get(10, [0])[0],
    )


def unpacked_line(line: int) -> int:
    return line - (1 << 64) if line >> 63 else line
