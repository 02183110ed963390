"""The time for which a loop may sleep until its next deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable

# poll(2) counts milliseconds in 32 bits, which is 24 days. Waking up once an hour costs nothing.
LONGEST_S = 3600.0


def poll_timeout_ms(deadlines: Iterable[float], now: float) -> int | None:
    """The timeout for `poll`: the time from `now` to the first deadline, at least 0 and at most an
    hour. `None` if there is no deadline."""
    first = min(deadlines, default=None)
    if first is None:
        return None
    return math.ceil(1000 * min(max(first - now, 0.0), LONGEST_S))
