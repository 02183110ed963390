"""The ticks and events of datagrams, as the recorder keeps them in memory and in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headway.recorder.records.calls import Call
from headway.recorder.records.sender import Sender

# The estimated memory of an event in addition to its texts.
EVENT_BYTES = 1_500


class Tick(NamedTuple):
    """A tick. `number` increases from tick to tick, and from run to run of the recorder. `calls`
    are those that it names."""

    number: int
    time: float
    sender: Sender
    record: bytes
    calls: Sequence[Call] = ()


class Event(NamedTuple):
    """A slow request, lifecycle message, collection or long hold. An event replaces an earlier one
    of the same sender, kind and key."""

    number: int
    kind: str
    time: float
    sender: Sender
    key: str
    body: dict[str, Any]

    @property
    def size(self) -> int:
        """Its estimated memory in bytes."""
        return EVENT_BYTES + sum(len(each) for each in self.body.values() if isinstance(each, str))
