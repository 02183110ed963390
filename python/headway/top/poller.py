"""Asks the source repeatedly on a thread of its own, so that the screen responds to keys meanwhile.

The screen's thread sets the request. The poller's thread calls `deliver` with each answer. It is a
daemon thread, so a recorder that does not answer cannot delay the exit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from headway.top.source import Answer, NoAnswer, Parameters, Source, ask_now


class ViewRequest(NamedTuple):
    """The request for the view with this name: `now`, of one group if it has a name, and the page
    `path` below /api/v1/ if the view has one."""

    view: str
    window_s: float
    group: str | None
    path: str = ""
    query: Parameters = ()


class Figures(NamedTuple):
    request: ViewRequest
    now: Answer
    answer: Answer


class Trouble(NamedTuple):
    reason: str


class Poller(threading.Thread):
    def __init__(
        self,
        source: Source,
        request: ViewRequest,
        interval_s: float,
        deliver: Callable[[Figures | Trouble], object],
    ) -> None:
        super().__init__(name="headway-top", daemon=True)
        self._source = source
        self._request = request
        self._interval_s = interval_s
        self._deliver = deliver
        # Guards the request, and whether to ask at all.
        self._changed = threading.Condition()
        self._is_new = True
        self._is_paused = False
        self._is_ended = False

    def ask(self, request: ViewRequest) -> None:
        """Changes the request and asks it at once, even while paused."""
        with self._changed:
            self._request, self._is_new = request, True
            self._changed.notify()

    def pause(self, paused: bool) -> None:
        with self._changed:
            self._is_paused = paused
            self._is_new = self._is_new or not paused
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify()

    def run(self) -> None:
        while (request := self._next()) is not None:
            try:
                now = ask_now(self._source, request.window_s, request.group)
                answer = self._source.ask(request.path, request.query) if request.path else {}
                found: Figures | Trouble = Figures(request, now, answer)
            except NoAnswer as error:
                found = Trouble(str(error))
            except Exception as error:
                # The thread goes on after any error: the screen would show old figures as new ones.
                found = Trouble(f"{type(error).__name__}: {error}")
            if self._is_ended:
                return
            self._deliver(found)

    def _next(self) -> ViewRequest | None:
        with self._changed:
            if not self._is_new:
                self._changed.wait_for(lambda: self._is_new or self._is_ended, self._interval_s)
            self._changed.wait_for(lambda: self._is_new or self._is_ended or not self._is_paused)
            self._is_new = False
            return None if self._is_ended else self._request
