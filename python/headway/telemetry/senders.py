"""Who sends: tells processes apart, keeps what each says of itself, and counts what got lost on the
way.

A process is its host, its pid and when it started. mod_wsgi's datagrams do not say when; a
lifecycle datagram that says "started", or sequence numbers that begin anew, tell there that the
system has given the pid away again. Knows nothing of sockets and stores; called by one thread at a
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.telemetry.shape import TIMEOUTS

# A stamp may be so far behind our clock, as a relay that was cut off sends it, and so far ahead,
# before it is not believed.
MAX_BEHIND_S = 86_400.0
MAX_AHEAD_S = 5.0
# Datagrams of different threads of a process may overtake each other; no further than this.
REORDERED = 16
# After so long without a datagram a process is forgotten here; the store keeps it.
FORGOTTEN_AFTER_S = 900.0
MAX_SENDERS = 20_000
# What a process says of itself hardly ever changes, and is looked at so often.
IDENTITY_INTERVAL_S = 5.0
MAX_NAME = 255
MAX_TEXT = 1000

TICK, STARTED, STOPPED = 2, 5, 7

# What a process says about itself in every tick and what stays the same between ticks.
IDENTITY = frozenset(
    (
        "mod_wsgi_version",
        "python_version",
        "apache_version",
        "mpm_name",
        "process_parent_pid",
        "telemetry_interval",
        "slow_requests_threshold",
        "switch_interval",
        "request_threads_maximum",
        "headway_version",
        "gil_mode",
        "policy",
        "process_kind",
        "process_name",
        "cpu_cores",
        "cgroup_cpu_limit",
        "cgroup_memory_limit",
        "kernel_hints",
        *TIMEOUTS,
    )
)


class Key(NamedTuple):
    """What names a process. `started` is 0 until it is known, with mod_wsgi for good if the
    recorder came later than the process."""

    host: str
    pid: int
    started: float


@dataclass(eq=False)
class Sender:
    """One process. `sequence` is its latest datagram's; `lost` are those that never came."""

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
    clock_is_off: bool = False
    pid_confirmed: bool | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    # By what ways its datagrams came.
    origins: set[str] = field(default_factory=set)

    @property
    def key(self) -> Key:
        return Key(self.host, self.pid, self.started)

    @property
    def interval_s(self) -> float:
        """How often it reports."""
        interval = self.identity.get("telemetry_interval")
        return interval if isinstance(interval, float) and 0 < interval < 3600 else 1.0

    def is_alive(self, now: float) -> bool:
        return not self.ended and now - self.arrived <= max(5.0, 4 * self.interval_s)


class TooMany(Exception):
    """Nobody has that many processes: somebody makes them up."""


class Senders:
    """All that were heard of lately."""

    def __init__(self, host: str) -> None:
        """`host` is who sends that does not say where it is."""
        self._host = host
        # By origin ("" is our own socket, else the relay's host) and pid: the one alive there.
        self._by_pid: dict[tuple[str, int], Sender] = {}
        self._by_key: dict[tuple[str, int], Sender] = {}
        self.gone_lost = 0
        self.gone_unsent = 0
        self.gone_records_lost = 0
        self.clocks_off = 0

    def __iter__(self) -> Iterator[Sender]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def remember(self, sender: Sender) -> None:
        """One that an earlier run of the recorder knew."""
        self._by_key[sender.host, sender.pid] = sender
        if sender.host == self._host:
            self._note_origin(sender, "")

    def identify(
        self,
        origin: str,
        kind: int,
        pid: int,
        sequence: int,
        stamp: float,
        fields: dict[str, Any],
        now: float,
    ) -> tuple[Sender, float]:
        """Whose datagram it is, and the time that counts for it. Raises `TooMany`."""
        time = stamp if -MAX_BEHIND_S <= stamp - now <= MAX_AHEAD_S else now
        host = text_of(fields, "hostname", MAX_NAME)
        if host:
            sender = self._by_key.get((host, pid))
        else:
            # mod_wsgi's slow requests and garbage collections do not repeat it.
            sender = self._by_pid.get((origin, pid))
            host = sender.host if sender else origin or self._host
            sender = sender or self._by_key.get((host, pid))
        started = fields.get("process_started_stamp")
        started = float(started) if isinstance(started, (int, float)) else 0.0
        # The supervisor counts its own datagrams, also where it reports for one that died.
        is_own = not fields.get("reported_by_supervisor")
        if sender is not None and is_another(sender, kind, sequence if is_own else None, started):
            self._forget(sender)
            sender = None
        if sender is None:
            if len(self._by_key) >= MAX_SENDERS:
                raise TooMany
            if not started and kind == STARTED:
                started = time
            sender = Sender(host, pid, started, first_seen=time)
            self._by_key[host, pid] = sender
        self._note_origin(sender, origin)
        if time != stamp:
            self.clocks_off += 1
            sender.clock_is_off = True
        if is_own:
            count_gap(sender, sequence)
        update(sender, kind, fields)
        if kind == STARTED:
            update_identity(sender, fields)
        elif kind == TICK and now - sender.identified >= IDENTITY_INTERVAL_S:
            sender.identified = now
            update_identity(sender, fields)
        sender.arrived = now
        sender.last_seen = max(sender.last_seen, time)
        sender.first_seen = min(sender.first_seen, time)
        return sender, time

    def forget_silent(self, now: float) -> None:
        for sender in [each for each in self if now - each.arrived > FORGOTTEN_AFTER_S]:
            self._forget(sender)

    def _forget(self, sender: Sender) -> None:
        self.gone_lost += sender.lost
        self.gone_unsent += sender.unsent
        self.gone_records_lost += sender.records_lost
        self._by_key.pop((sender.host, sender.pid), None)
        for origin in sender.origins:
            if self._by_pid.get((origin, sender.pid)) is sender:
                del self._by_pid[origin, sender.pid]

    def _note_origin(self, sender: Sender, origin: str) -> None:
        sender.origins.add(origin)
        self._by_pid[origin, sender.pid] = sender

    @property
    def lost(self) -> int:
        """Datagrams that were sent and did not arrive."""
        return self.gone_lost + sum(each.lost for each in self)

    @property
    def unsent(self) -> int:
        """Ticks that could not be sent in time, and are part of later ones."""
        return self.gone_unsent + sum(each.unsent for each in self)

    @property
    def records_lost(self) -> int:
        """Slow requests, holds and collections that processes had no room for."""
        return self.gone_records_lost + sum(each.records_lost for each in self)


def is_another(sender: Sender, kind: int, sequence: int | None, started: float) -> bool:
    """Whether the pid belongs to another process than this one by now."""
    if started and sender.started:
        # Whoever else reports it may have rounded.
        return abs(started - sender.started) > 1.0
    last = sender.sequence
    if last is None or sequence is None:
        return kind == STARTED and sender.ended
    if sender.ended and kind != STOPPED and sequence < last:
        return True
    if kind == STARTED:
        return sequence < last and last - sequence >= REORDERED
    return last - sequence >= REORDERED


def count_gap(sender: Sender, sequence: int) -> None:
    last = sender.sequence
    if last is None:
        sender.sequence = sequence
    elif sequence > last:
        sender.lost += sequence - last - 1
        sender.sequence = sequence
    elif sequence < last and sender.lost:
        # It was counted as lost when a later one overtook it.
        sender.lost -= 1


def update(sender: Sender, kind: int, fields: dict[str, Any]) -> None:
    """What a datagram says of its sender."""
    if not sender.started and isinstance(fields.get("process_started_stamp"), float):
        sender.started = fields["process_started_stamp"]
    sender.group = text_of(fields, "process_group", MAX_NAME) or sender.group
    sender.kind = text_of(fields, "process_kind", MAX_NAME) or sender.kind
    for name, attribute in (("ticks_unsent", "unsent"), ("records_lost", "records_lost")):
        count = fields.get(name)
        if isinstance(count, int):
            setattr(sender, attribute, count)
    if kind == STOPPED:
        sender.ended = True


def update_identity(sender: Sender, fields: dict[str, Any]) -> None:
    for name in IDENTITY & fields.keys():
        value = fields[name]
        sender.identity[name] = value[:MAX_TEXT] if isinstance(value, str) else value


def text_of(fields: dict[str, Any], name: str, limit: int) -> str:
    value = fields.get(name)
    return value[:limit] if isinstance(value, str) else ""
