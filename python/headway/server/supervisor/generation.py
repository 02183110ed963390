"""A generation: the processes that one reading of the configuration asks for, and their places.

A place (`Slot`) belongs to process N of a group and outlives the processes that fill it one after
another. Holds what is; the supervisor decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from headway.server.settings import ProcessGroup, ServerSettings
from headway.server.supervisor.process import Process

# A process that served for so long has done well: what ends it then is not held against the next.
HEALTHY_S = 10.0
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 30.0
# Restarts after an interval come up to this share of it early, so that not all come at once.
RESTART_JITTER = 0.1


class Slot:
    """The place of one worker."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.serving: Process | None = None
        # Will take the place once it is ready.
        self.starting: Process | None = None
        # Deaths in a row, of processes that did not do well.
        self.failures = 0
        # When to start again, by the supervisor's clock.
        self.retry_at: float | None = None
        self.awaits_template = False

    def count_death(self, process: Process, now: float) -> float:
        """How long to wait before the next start: not at all at first, then longer and longer."""
        served_since = process.serving_since
        if served_since is not None and now - served_since >= HEALTHY_S:
            self.failures = 0
        self.failures += 1
        if self.failures == 1:
            return 0.0
        # An exponent that stays small: the count may grow for weeks.
        return min(FIRST_DELAY_S * 2.0 ** min(self.failures - 2, 20), LONGEST_DELAY_S)


class RunningGroup:
    """A process group of one generation."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.slots = [Slot(number) for number in range(1, group.processes + 1)]
        self.template: Process | None = None

    def restart_after_s(self) -> float:
        """How long the next process may serve; 0 for ever."""
        return self.group.restart_interval_s * (1 - random.random() * RESTART_JITTER)


class Generation:
    """All groups of one configuration; numbered from 1."""

    def __init__(self, number: int, settings: ServerSettings, reason: str) -> None:
        """`reason` is why there is another one now, by mod_wsgi's names."""
        self.number = number
        self.reason = reason
        self.settings = settings
        self.groups = [RunningGroup(group) for group in settings.groups]

    def slots(self) -> Iterator[tuple[RunningGroup, Slot]]:
        for group in self.groups:
            for slot in group.slots:
                yield group, slot

    def place_of(self, process: Process) -> tuple[RunningGroup, Slot] | None:
        """The slot that the process fills or will fill."""
        for group, slot in self.slots():
            if process in (slot.serving, slot.starting):
                return group, slot
        return None

    def group_of(self, template: Process) -> RunningGroup | None:
        return next((each for each in self.groups if each.template is template), None)

    def is_ready(self) -> bool:
        """Whether every place has a process that could serve."""
        return all(slot.starting and slot.starting.is_ready for _, slot in self.slots())
