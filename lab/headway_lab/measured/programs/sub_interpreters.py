"""CPU-bound threads with a sub-interpreter and a GIL each, in one process (PEP 684).

CPython has them from 3.12 on. What they count lies in memory that all interpreters of the process
share, since they share no objects; each maps it for itself.
"""

from __future__ import annotations

import importlib
import mmap
import os
import sys

from computation import Computation, add_and_subtract

PLACE_BYTES = 8
IMPORT = "import sub_interpreters"
COMPUTE = "sub_interpreters.compute(descriptor, size, index)"
# Of CPython's own: what the standard library puts around it is from 3.14 on.
interpreters = importlib.import_module(
    "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
)


def places(descriptor: int, size: int) -> memoryview[int]:
    """How often each thread did the work, and behind them whether they are to stop."""
    return memoryview(mmap.mmap(descriptor, size)).cast("q")


def compute(descriptor: int, size: int, index: int) -> None:
    """Runs in the sub-interpreter."""
    shared = places(descriptor, size)
    while not shared[-1]:
        add_and_subtract()
        # Only this thread writes its place.
        shared[index] += 1


class SubInterpreters(Computation):
    """As its base. The sub-interpreters are there, with what they import, before it starts."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._size = PLACE_BYTES * (threads + 1)
        self._descriptor = os.memfd_create("sub_interpreters")
        os.ftruncate(self._descriptor, self._size)
        self._shared = places(self._descriptor, self._size)
        self._interpreters = [interpreters.create() for _ in range(threads)]
        for index in range(threads):
            self._execute(index, IMPORT)

    def stop(self) -> None:
        self._shared[-1] = 1
        super().stop()

    def done(self) -> int:
        return sum(self._shared[:-1])

    def _compute(self, index: int) -> None:
        self._execute(index, COMPUTE)

    def _execute(self, index: int, script: str) -> None:
        told = {"descriptor": self._descriptor, "size": self._size, "index": index}
        # 3.12 raises what the script raised, later versions return it.
        failure = interpreters.run_string(self._interpreters[index], script, told)
        if failure is not None:
            raise RuntimeError(failure.formatted)
