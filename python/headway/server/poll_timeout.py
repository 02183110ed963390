"""How long a loop may sleep before the next thing that is due."""

from __future__ import annotations

import math
from collections.abc import Iterable

# poll(2) counts milliseconds in 32 bits, 24 days; nobody minds a loop that looks up now and then.
LONGEST_S = 3600.0


def patience_ms(deadlines: Iterable[float], now: float) -> int | None:
    """For `poll`: until the first of these times by the clock that shows `now`, never less, but for
    an hour at most. `None` if nothing is due."""
    first = min(deadlines, default=None)
    if first is None:
        return None
    return math.ceil(1000 * min(max(first - now, 0.0), LONGEST_S))
