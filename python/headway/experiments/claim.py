"""A sentence about results that a number decides."""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Statement(NamedTuple):
    """`value` lies within `low` to `high` if measurements and publication agree. `why` is a line
    for readers who see that they do not: what is known to be different."""

    text: str
    value: float
    low: float = -math.inf
    high: float = math.inf
    why: str = ""

    @property
    def agrees(self) -> bool:
        return self.low <= self.value <= self.high

    @property
    def allowed(self) -> str:
        if self.high == math.inf:
            return f"at least {self.low:g}"
        if self.low == -math.inf:
            return f"at most {self.high:g}"
        return f"from {self.low:g} to {self.high:g}"

    def to_dict(self) -> dict[str, Any]:
        """For the benchmark results, schema 1."""
        known = math.isfinite(self.value)
        return {
            "text": self.text,
            "value": self.value if known else None,
            "allowed": self.allowed,
            "agrees": self.agrees,
            "why": "" if self.agrees else self.why,
        }
