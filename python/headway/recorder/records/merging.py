"""Sums of records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from headway import _native

# Records are merged once they are this large together. Each of the site's threads may do so.
MAX_UNMERGED_BYTES = 4 << 20

K = TypeVar("K")


def merge(records: Sequence[bytes]) -> bytes:
    """Merges records into one. Damaged records are left out."""
    if len(records) == 1:
        return records[0]
    try:
        return _native.telemetry_merge(records)
    except ValueError:
        return _native.telemetry_merge([each for each in records if is_record(each)])


def is_record(record: bytes) -> bool:
    try:
        _native.telemetry_merge([record])
    except ValueError:
        return False
    return True


def merge_by_key(records: Iterable[tuple[K, bytes]]) -> dict[K, bytes]:
    """The sum of the records of each key. Few records are in memory beside the sums."""
    found: dict[K, list[bytes]] = defaultdict(list)
    added_bytes = 0
    for key, record in records:
        found[key].append(record)
        added_bytes += len(record)
        if added_bytes > MAX_UNMERGED_BYTES:
            added_bytes = 0
            for each in found.values():
                each[:] = [merge(each)]
    return {key: merge(each) for key, each in found.items()}
