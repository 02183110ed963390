"""A setting that is tried: a policy with a switch interval, and the candidates beside the present
one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway import gil
from headway.report import units

SWITCH_INTERVALS_S = (0.005, 0.0005)


class Setting(NamedTuple):
    policy: str
    switch_interval_s: float

    def __str__(self) -> str:
        return f"{self.policy} at {units.seconds(self.switch_interval_s)}"


def candidates(
    present: Setting,
    policies: Sequence[str] | None = None,
    switch_intervals_s: Sequence[float] | None = None,
) -> list[Setting]:
    """Every combination except the present setting, each once. By default, all policies at the
    present switch interval and at those of SWITCH_INTERVALS_S."""
    intervals = switch_intervals_s or dict.fromkeys(
        (present.switch_interval_s, *SWITCH_INTERVALS_S)
    )
    every = (
        Setting(policy, interval) for interval in intervals for policy in policies or gil.policies()
    )
    return [each for each in dict.fromkeys(every) if each != present]
