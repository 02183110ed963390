"""A generation: the processes that one reading of the configuration calls for, and their slots.

A `Slot` belongs to process N of a group and outlives the processes that fill it one after another.
This module only holds state; the supervisor decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from headway.server.settings import ProcessGroup, ServerSettings
from headway.server.supervisor.process import Process

# A process that served this long is healthy: its end starts the count of failures anew.
HEALTHY_S = 10.0
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 30.0
# A restart interval is shortened by up to this fraction at random, so that processes do not all
# restart at once.
RESTART_JITTER = 0.1


class Slot:
    """The place of one worker, which is process `number` of `group`."""

    def __init__(self, number: int, group: ProcessGroup) -> None:
        self.number = number
        self.group = group
        self.serving: Process | None = None
        # Becomes `serving` once it is ready.
        self.starting: Process | None = None
        # Consecutive deaths, starting anew after a process that was healthy.
        self.failures = 0
        # When to start a process, by the supervisor's clock; `None` if no start is due.
        self.retry_at: float | None = None
        self.awaits_template = False

    def count_death(self, process: Process, now: float) -> float:
        """Counts a death and returns the seconds to wait before the next start: 0 after the first
        death, then exponentially more, up to `LONGEST_DELAY_S`."""
        served_since = process.serving_since
        if served_since is not None and now - served_since >= HEALTHY_S:
            self.failures = 0
        self.failures += 1
        if self.failures == 1:
            return 0.0
        # The exponent is bounded because the count may grow for weeks.
        return min(FIRST_DELAY_S * 2.0 ** min(self.failures - 2, 20), LONGEST_DELAY_S)


class RunningGroup:
    """A process group of one generation. Its background process, if it has one, is in a process
    group of its own, which has the same template and environment."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.process_groups = (group, group.of_background()) if group.background else (group,)
        self.slots = [
            Slot(number, each)
            for each in self.process_groups
            for number in range(1, each.processes + 1)
        ]
        self.template: Process | None = None
        # That of its processes, once one has started. Looking up the user may take long, as where
        # users are in a directory, and later starts must not wait for it.
        self.environment: dict[str, str] | None = None

    def restart_after_s(self) -> float:
        """How many seconds the next process may serve; 0 means no limit."""
        return self.group.restart_interval_s * (1 - random.random() * RESTART_JITTER)


class Generation:
    """All groups of one configuration. Generations are numbered from 1."""

    def __init__(self, number: int, settings: ServerSettings, reason: str) -> None:
        """`reason` is mod_wsgi's name for why this generation replaces the one before."""
        self.number = number
        self.reason = reason
        self.settings = settings
        self.groups = [RunningGroup(group) for group in settings.groups]

    def slots(self) -> Iterator[tuple[RunningGroup, Slot]]:
        for group in self.groups:
            for slot in group.slots:
                yield group, slot

    def place_of(self, process: Process) -> tuple[RunningGroup, Slot] | None:
        """The group and slot that the process fills or will fill; `None` if there is none."""
        for group, slot in self.slots():
            if process in (slot.serving, slot.starting):
                return group, slot
        return None

    def group_of(self, template: Process) -> RunningGroup | None:
        return next((each for each in self.groups if each.template is template), None)

    def is_ready(self) -> bool:
        """Whether every slot has a process that is ready to serve."""
        return all(slot.starting and slot.starting.is_ready for _, slot in self.slots())
