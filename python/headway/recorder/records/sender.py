"""A process that reports, and what the kernel attests of it.

Host, pid and start time identify a process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway import _native

# The recorder trusts a stamp that is at most this far ahead of its own clock.
MAX_AHEAD_S = 5.0
# A process without a datagram for this time is forgotten in memory; the store keeps it.
FORGOTTEN_AFTER_S = 900.0


class Bounds(NamedTuple):
    """The limits of one source. `new_per_minute` limits how fast it names new processes."""

    processes: int
    hosts: int
    groups: int
    new_per_minute: int


# A process reports for itself, a supervisor for workers that died.
OF_PROCESS = Bounds(processes=64, hosts=8, groups=16, new_per_minute=256)
# In containers pids are alike: one pid of one user stands for one process of each container.
OF_NAMESPACE = Bounds(processes=256, hosts=256, groups=256, new_per_minute=256)


class Source(NamedTuple):
    """The sender of a datagram: the process `pid` of the user `uid`, as the kernel attests it.

    For a process of another PID namespace `is_attested` is false, and `pid` is what it claims.
    """

    uid: int
    pid: int
    is_attested: bool = True

    @property
    def bounds(self) -> Bounds:
        return OF_PROCESS if self.is_attested else OF_NAMESPACE


class Key(NamedTuple):
    """The identity of a process. `started` is 0 until it is known; with mod_wsgi it stays 0 if the
    recorder started after the process."""

    host: str
    pid: int
    started: float


@dataclass(eq=False)
class Sender:
    """One process. `sequence` is the number of its latest datagram; `lost` counts its datagrams
    that never arrived."""

    host: str
    pid: int
    started: float
    group: str = ""
    kind: str = ""
    first_seen: float = 0.0
    last_seen: float = 0.0
    arrived: float = 0.0
    ended: bool = False
    identified: float = 0.0
    sequence: int | None = None
    lost: int = 0
    unsent: int = 0
    records_lost: int = 0
    pid_confirmed: bool | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    # The names of lines and calls that it has sent, for `_native.telemetry_add_holders`.
    holder_names: object = field(default_factory=_native.telemetry_holder_names)
    # The source of its first datagram; `None` if the kernel does not attest it.
    source: Source | None = None
    # The arrival and the stamp of the first tick, and the sum of the intervals of later ticks.
    first_tick: tuple[float, float] | None = None
    interval_sum_s: float = 0.0

    @property
    def key(self) -> Key:
        return Key(self.host, self.pid, self.started)

    @property
    def interval_s(self) -> float:
        """The interval at which the process reports."""
        interval = self.identity.get("telemetry_interval")
        return interval if isinstance(interval, float) and 0 < interval < 3600 else 1.0

    def is_alive(self, now: float) -> bool:
        return not self.ended and now - self.arrived <= max(5.0, 4 * self.interval_s)
