"""A process in the results of queries. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Process:
    """A process. `started` is 0 if it is unknown; `identity` has the fields of its ticks that stay
    the same."""

    host: str
    pid: int
    started: float
    group: str
    kind: str
    alive: bool
    last_seen: float
    identity: dict[str, Any] = field(default_factory=dict, compare=False)
