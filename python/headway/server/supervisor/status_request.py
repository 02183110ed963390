"""Status requests: the supervisor asks each serving process how many requests it has served.

A process that does not answer within `PATIENCE_S` is shown without a number. While no client asks,
processes report no numbers. Only the supervisor's single thread uses this module; it never blocks
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.server.supervisor.process import Process, State
from headway.server.supervisor.status_document import InterpreterStatus, Status
from headway.server.system import Clock

# A process takes the GIL once to answer.
PATIENCE_S = 0.5

Asker = Callable[[Status], None]


class StatusRequest:
    """At most one at a time: clients that ask while it is under way get the same answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._askers: list[Asker] = []
        self._unheard: set[Process] = set()
        # When the request ends, by the clock; `None` while there is none.
        self.deadline: float | None = None

    def join(self, asker: Asker, processes: Iterable[Process]) -> None:
        """Joins the request or starts one. `asker` will be called with the document."""
        self._askers.append(asker)
        if self.deadline is not None:
            return
        self.deadline = self._clock() + PATIENCE_S
        for process in processes:
            process.requests = None
            process.interpreters = []
            if process.state in (State.SERVING, State.RETIRING) and process.tell("count"):
                self._unheard.add(process)

    def hear(self, process: Process, requests: int, interpreters: list[InterpreterStatus]) -> None:
        process.requests = requests
        process.interpreters = interpreters
        self._unheard.discard(process)

    def is_over(self) -> bool:
        """Whether a status request is under way and needs no further answers."""
        if self.deadline is None:
            return False
        # Processes whose control socket is closed will not answer.
        waits = any(each.control.fileno() >= 0 for each in self._unheard)
        return not waits or self._clock() >= self.deadline

    def answer(self, document: Status) -> None:
        askers, self._askers = self._askers, []
        self._unheard.clear()
        self.deadline = None
        for asker in askers:
            asker(document)
