"""One round of one cell of an echo server: who schedules it, and what computes beside it.

How it is measured is the experiment's `headway bench echo`. Knows nothing of rounds or of what the
figures are held to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headway_lab.measured import echo_value
from headway_lab.measured.echo_value import FREE, Beside
from headway_lab.setting import STOCK, Setting


class Cell(NamedTuple):
    """`mode` is where the CPU-bound work runs: in the server's "threads", or in "processes"."""

    cpu_threads: int
    mode: str
    setting: Setting

    @property
    def row(self) -> str:
        return self.setting.name if self.mode == "threads" else self.mode

    def parameters(self) -> dict[str, Any]:
        return {
            "cpu_threads": self.cpu_threads,
            "mode": self.mode,
            **self.setting.parameters(),
        }

    def __str__(self) -> str:
        return f"{self.cpu_threads} CPU-bound, {self.row}"


def measure(cell: Cell, seconds: float, server: str) -> dict[str, float]:
    """The figures of one window; `server` is a program of Headway's bench/programs/."""
    beside = Beside(cell.setting, STOCK, cell.cpu_threads, cell.mode, FREE)
    found = echo_value.measure(beside, seconds, server)
    return {"requests_per_s": found.value, **found.figures}
