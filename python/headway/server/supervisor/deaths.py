"""How often processes of a group ended, and why; for `headway status`."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any


class Deaths:
    """Reasons are mod_wsgi's names for what the supervisor wanted, else a signal or exit status."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self.last: dict[str, Any] | None = None

    def count(self, reason: str, pid: int) -> None:
        self.by_reason[reason] += 1
        self.last = {"reason": reason, "pid": pid, "time": time.time()}
