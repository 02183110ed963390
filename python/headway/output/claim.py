"""A sentence about results, and the number that decides whether they agree with it."""

from __future__ import annotations

import math
from typing import NamedTuple


class Statement(NamedTuple):
    """Measurements and publication agree if `value` lies within `low` to `high`. If they do not,
    `why` tells readers about known differences between the two."""

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

    def checked(self) -> CheckedClaim:
        """The statement in the form of the benchmark results, schema 1."""
        value = self.value if math.isfinite(self.value) else None
        why = "" if self.agrees else self.why
        return CheckedClaim(self.text, value, self.allowed, self.agrees, why)


class CheckedClaim(NamedTuple):
    """A statement in the form of a file of results. `value` is None for a number that is not
    finite."""

    text: str
    value: float | None
    allowed: str
    agrees: bool
    why: str
