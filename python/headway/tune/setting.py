"""A setting that is tried: a policy with a switch interval, and the shape of a server that an
experiment starts; and the candidates beside the present setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway import gil
from headway.report import units

SWITCH_INTERVALS_S = (0.005, 0.0005)


class Shape(NamedTuple):
    """Options of `headway serve`. An option that an experiment does not vary is None."""

    processes: int | None = None
    threads: int | None = None
    interpreters: int | None = None

    def varied(self) -> dict[str, int]:
        return {name: count for name, count in self._asdict().items() if count is not None}

    def __str__(self) -> str:
        return ", ".join(f"{name} = {count}" for name, count in self.varied().items())


AS_IT_IS = Shape()


class Setting(NamedTuple):
    policy: str
    switch_interval_s: float
    shape: Shape = AS_IT_IS

    @property
    def of_gil(self) -> str:
        return f"{self.policy} at {units.seconds(self.switch_interval_s)}"

    def __str__(self) -> str:
        return self.of_gil if self.shape == AS_IT_IS else f"{self.of_gil} ({self.shape})"


class Excluded(NamedTuple):
    """A shape that is not tried."""

    shape: Shape
    why: str


def candidates(
    present: Setting,
    policies: Sequence[str] | None = None,
    switch_intervals_s: Sequence[float] | None = None,
    shapes: Sequence[Shape] = (),
) -> list[Setting]:
    """Every combination except the present setting, each once. By default, all policies at the
    present switch interval and at those of SWITCH_INTERVALS_S; beside shapes, the present policy
    and the present switch interval."""
    if shapes:
        default_policies, default_intervals = [present.policy], [present.switch_interval_s]
    else:
        default_policies = list(gil.policies())
        default_intervals = [present.switch_interval_s, *SWITCH_INTERVALS_S]
    every = (
        Setting(policy, interval, shape)
        for shape in shapes or (present.shape,)
        for interval in switch_intervals_s or default_intervals
        for policy in policies or default_policies
    )
    return [each for each in dict.fromkeys(every) if each != present]
