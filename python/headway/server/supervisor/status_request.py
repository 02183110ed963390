"""Somebody asks who is alive: the processes that serve are asked in turn how many requests each has
had, and whoever has not said after a moment is shown without a number.

So nobody counts or tells anything while nobody asks. The supervisor's one thread uses this; it
never waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headway.server.supervisor.process import Process, State
from headway.server.system import Clock

# A process takes the GIL once to answer.
PATIENCE_S = 0.5

Asker = Callable[[dict[str, Any]], None]


class Inquiry:
    """One at a time; who asks meanwhile gets the same answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._askers: list[Asker] = []
        self._unheard: set[Process] = set()
        # When to wait no longer, by the clock; `None` while nobody asks.
        self.deadline: float | None = None

    def join(self, asker: Asker, processes: Iterable[Process]) -> None:
        """`asker` will be called with the document."""
        self._askers.append(asker)
        if self.deadline is not None:
            return
        self.deadline = self._clock() + PATIENCE_S
        for process in processes:
            process.requests = None
            process.interpreters = []
            if process.state in (State.SERVING, State.RETIRING) and process.tell("count"):
                self._unheard.add(process)

    def hear(self, process: Process, requests: int, interpreters: list[dict[str, Any]]) -> None:
        process.requests = requests
        process.interpreters = interpreters
        self._unheard.discard(process)

    def is_over(self) -> bool:
        """Whether there is somebody to answer, and nothing more to wait for."""
        if self.deadline is None:
            return False
        # Not for those that have gone.
        waits = any(each.control.fileno() >= 0 for each in self._unheard)
        return not waits or self._clock() >= self.deadline

    def answer(self, document: dict[str, Any]) -> None:
        askers, self._askers = self._askers, []
        self._unheard.clear()
        self.deadline = None
        for asker in askers:
            asker(document)
