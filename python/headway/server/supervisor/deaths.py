"""Counts how often the processes of a group ended, by reason; for `headway status`."""

from __future__ import annotations

import time
from collections import Counter

from headway.server.supervisor.status_document import Death


class Deaths:
    """A reason is mod_wsgi's name if the supervisor ended the process, else a signal or exit
    status."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self.last: Death | None = None

    def count(self, reason: str, pid: int) -> None:
        self.by_reason[reason] += 1
        self.last = {"reason": reason, "pid": pid, "time": time.time()}
