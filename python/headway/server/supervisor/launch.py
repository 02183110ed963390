"""Starts the process for a slot: composes its task and passes the listening sockets.

With `preload`, a group's template starts first and forks the group's workers. This module does not
know why a process is started. Only the supervisor's single thread uses it.
"""

from __future__ import annotations

import os

from headway.server import identity
from headway.server.settings import ProcessGroup
from headway.server.supervisor.children import Children
from headway.server.supervisor.generation import Generation, RunningGroup, Slot
from headway.server.supervisor.listeners import Listeners
from headway.server.supervisor.process import Process, State, fork, spawn
from headway.server.system import System
from headway.server.task import Task


class Launch:
    """Starts processes on the listening sockets, and adds them to the children."""

    def __init__(self, listeners: Listeners, children: Children, system: System) -> None:
        self._listeners = listeners
        self._children = children
        self._system = system

    def fill(self, generation: Generation, running: RunningGroup, slot: Slot) -> None:
        """Starts a process for the slot, or the template that the slot has to wait for. Raises
        `OSError` if the system cannot start it."""
        slot.retry_at = None
        if not running.group.preload:
            slot.starting = self._spawn(generation, running, slot.group, slot.number)
            return
        if running.template is None:
            running.template = self._spawn(generation, running, running.group, 0)
        slot.awaits_template = running.template.state is State.STARTING
        if not slot.awaits_template:
            slot.starting = fork(running.template, slot.group, slot.number, self._system)
            self._add(slot.starting)

    def _spawn(
        self, generation: Generation, running: RunningGroup, group: ProcessGroup, number: int
    ) -> Process:
        """Starts process `number` of the group; number 0 is the group's template."""
        are_several = sum(len(each.slots) for each in generation.groups) > 1
        task = Task(
            group=group,
            number=number,
            listeners=tuple(
                (each.socket.fileno(), str(each.address))
                for each in self._listeners.of(running.group)
            ),
            handover=self._listeners.handover_of(running.group),
            multiprocess=group.processes > 1 or group.multiprocess or bool(group.background),
            shows_table=generation.settings.final_table or not are_several or os.isatty(2),
            labelled=are_several,
            watched=generation.settings.reload,
            is_template=number == 0,
            directory=generation.settings.directory,
            telemetry=generation.settings.reporting,
        )
        if running.environment is None:
            running.environment = identity.environment(group, dict(os.environ))
        process = spawn(task, number, generation.number, running.environment, self._system)
        self._add(process)
        return process

    def _add(self, process: Process) -> None:
        process.enter(State.STARTING, process.group.startup_timeout_s)
        self._children.add(process)
