"""Servers that stand by, one for each shape, because a server cannot change its shape.

All of them run until the experiment ends, and only the one that is measured has a load. So no block
has a server that is still cold, and each round has a block of each shape.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from typing import NamedTuple

from headway.errors import CommandError
from headway.programs import process_tree
from headway.tune.connection import Connection, Opened
from headway.tune.goals import MEMORY, Figures
from headway.tune.load import RunningLoad
from headway.tune.served import Served
from headway.tune.server import Server, Timing
from headway.tune.setting import Excluded, Setting, Shape
from headway.tune.trials import Measured


class Budget(NamedTuple):
    """The limits of a candidate's server, None without one. Threads that share a GIL use one
    core."""

    cores: int | None
    memory_bytes: int | None


class Standby:
    """`start` starts a server and asks it for every target; `load` is the load on a port. `path` is
    the only one whose requests count; None counts all."""

    def __init__(
        self,
        present: Opened,
        budget: Budget,
        timing: Timing,
        path: str | None,
        start: Callable[[Shape], AbstractContextManager[Served]],
        load: Callable[[int], AbstractContextManager[RunningLoad]],
    ) -> None:
        self._present = present
        self._budget = budget
        self._timing = timing
        self._path = path
        self._start = start
        self._load = load
        self._stack = ExitStack()
        self._served: dict[Shape, Served] = {}
        self._control: Shape | None = None
        self.excluded: list[Excluded] = []

    def __enter__(self) -> Standby:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_control(self, shape: Shape, served: Served) -> None:
        """The server of the present shape, which no budget limits. Its caller ends it."""
        self._control = shape
        self._served[shape] = served

    def add(self, shape: Shape) -> bool:
        """Starts the server of a shape, unless it has one. False if the shape is excluded."""
        if shape in self._served:
            return True
        why = self._beyond_cores(shape)
        if not why:
            try:
                why = self._add(shape)
            except CommandError as error:
                why = str(error)
        if why:
            self.excluded.append(Excluded(shape, why))
        return not why

    def _add(self, shape: Shape) -> str:
        with ExitStack() as stack:
            served = stack.enter_context(self._start(shape))
            why = self._beyond_memory(process_tree.pss_bytes(served.pid))
            if not why:
                self._served[shape] = served
                self._stack.push(stack.pop_all())
        return why

    def measure(self, setting: Setting, control: Figures | None) -> Measured:
        """One block. A server that has gone has no figures."""
        served = self._served[setting.shape]
        try:
            with self._load(served.port) as load:
                with closing(Connection(served.address, None)) as connection:
                    server = Server(connection, self._timing, self._path, load)
                    found = server.measure(setting, control)
                # Requests that are left would delay the next block, of this server or another one.
                load.drain()
        except CommandError as error:
            return Measured({}, str(error), has_failed=True)
        memory_bytes = process_tree.pss_bytes(served.pid)
        if not found.figures:
            return found
        if setting.shape != self._control and (why := self._beyond_memory(memory_bytes)):
            return Measured({}, why, has_failed=True)
        return Measured({**found.figures, MEMORY.key: float(memory_bytes)})

    def _beyond_cores(self, shape: Shape) -> str:
        most = self._budget.cores
        gils = 1
        if self._present["own_gil"]:
            gils = shape.interpreters or self._present["interpreters"]
        cores = gils * (shape.processes or self._present["processes"])
        if most is None or cores <= most:
            return ""
        return f"it can use {cores} cores; --cores allows {most}"

    def _beyond_memory(self, used_bytes: int) -> str:
        most = self._budget.memory_bytes
        if most is None or used_bytes <= most:
            return ""
        return f"it uses {MEMORY.show(used_bytes)}; --memory allows {MEMORY.show(most)}"
