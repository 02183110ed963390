"""The calls that processes name: the frames of the stacks in their ticks.

A record has the identifiers of innermost calls alone. An identifier depends on the names of a call
and of all its callers, so it means the same in every process and in every store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# The oldest calls beyond this number are forgotten.
MAX_CALLS = 20_000


class Call(NamedTuple):
    """A call, or the endpoint whose request ran with the stack of `caller`.

    - `caller`: the identifier of the caller; `None` for an outermost call.
    - `function`, `place`: the function, and FILE:LINE or "" for no code.
    - `endpoint`: the endpoint, which has no function.
    """

    id: str
    caller: str | None
    function: str
    place: str
    endpoint: str


class Calls:
    """The calls that were named last."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}

    def add(self, calls: Iterable[Call]) -> None:
        for call in calls:
            # The latest calls are at the end.
            self._calls.pop(call.id, None)
            self._calls[call.id] = call
        while len(self._calls) > MAX_CALLS:
            del self._calls[next(iter(self._calls))]

    def find(self, ids: Iterable[str]) -> dict[str, Call]:
        return {id_: self._calls[id_] for id_ in ids if id_ in self._calls}
