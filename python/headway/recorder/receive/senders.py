"""The processes that send datagrams: their identity, their fields, and the datagrams lost.

Host, pid and start time identify a process. mod_wsgi's datagrams have no start time: there a
lifecycle datagram "started", or sequence numbers that begin again, show that the system has reused
the pid. Only one thread at a time may call this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headway.recorder.records.configuration import TIMEOUTS
from headway.recorder.records.sender import FORGOTTEN_AFTER_S, MAX_AHEAD_S, Sender, Source
from headway.report import columns

# The recorder trusts a stamp that is at most this far behind its own clock: datagrams wait in the
# socket while the recorder is suspended.
MAX_BEHIND_S = 86_400.0
# Datagrams of a process's threads can overtake each other by at most this many.
REORDERED = 16
MAX_SENDERS = 20_000
# The most processes of one user, as the kernel attests the user.
MAX_SENDERS_OF_USER = 5_000
# A gap of sequence numbers is plausible up to MAX_AT_ONCE, and MAX_PER_SECOND for each second since
# the last datagram.
MAX_PER_SECOND = 1_000
MAX_AT_ONCE = 100_000
# Ticks can overlap, and wait together in the socket. The sum of their intervals may exceed the time
# that passed by this factor and this time.
MAX_OVERLAP = 2.0
MAX_AHEAD_OF_TIME_S = 300.0
# The fields of IDENTITY hardly ever change. They are read at this interval.
IDENTITY_INTERVAL_S = 5.0
MAX_NAME = 255

TICK, STARTED, STOPPED = 2, 5, 7

# The fields of a tick that describe the process and stay the same between ticks.
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


class Refused(Exception):
    """The datagram is impossible, or its source reports too much. The text is the reason that
    counts it."""


def source_of(credentials: tuple[int, int] | None, claimed_pid: int) -> Source | None:
    """`credentials` are the kernel's pid and uid of the sender, if it gave them."""
    if credentials is None:
        return None
    pid, uid = credentials
    return Source(uid, pid) if pid > 0 else Source(uid, claimed_pid, is_attested=False)


@dataclass(eq=False)
class Reported:
    """The reports of a source. Processes are in the order in which they were first named."""

    processes: dict[tuple[str, int], Sender] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    minute: float = 0.0
    new_in_minute: int = 0


class Senders:
    """The processes that have reported lately."""

    def __init__(self, host: str) -> None:
        """`host` is the host of datagrams that name none."""
        self._host = host
        # The latest process with a pid.
        self._by_pid: dict[int, Sender] = {}
        self._by_key: dict[tuple[str, int], Sender] = {}
        self._reported: dict[Source, Reported] = {}
        self._of_user: Counter[int] = Counter()
        self.gone_lost = 0
        self.gone_unsent = 0
        self.gone_records_lost = 0
        self.clocks_off = 0

    def __iter__(self) -> Iterator[Sender]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def identify(
        self,
        kind: int,
        pid: int,
        sequence: int,
        stamp: float,
        fields: dict[str, Any],
        now: float,
        source: Source | None = None,
    ) -> tuple[Sender, float]:
        """The process that sent a datagram, and the trusted time of it. Raises `Refused`."""
        time = stamp if -MAX_BEHIND_S <= stamp - now <= MAX_AHEAD_S else now
        host = text_of(fields, "hostname", MAX_NAME)
        if host:
            sender = self._by_key.get((host, pid))
        else:
            # mod_wsgi's datagrams on slow requests and garbage collections have no host.
            sender = self._by_pid.get(pid)
            host = sender.host if sender else self._host
            sender = sender or self._by_key.get((host, pid))
        started = fields.get("process_started_stamp")
        started = float(started) if isinstance(started, (int, float)) else 0.0
        # A supervisor that reports the death of a worker uses its own sequence numbers.
        is_own = not fields.get("reported_by_supervisor")
        if sender is not None and kind == TICK and is_of_another_process(sender, source, pid):
            raise Refused("pid of another process")
        known = sender
        if sender is not None and is_another(sender, kind, sequence if is_own else None, started):
            sender = None
        if sender is not None and is_own and is_far_ahead(sender, sequence, now):
            raise Refused("sequence")
        group = text_of(fields, "process_group", MAX_NAME)
        reported = self._admit(source, sender, host, group, now)
        if sender is None:
            if not started and kind == STARTED:
                started = time
            sender = Sender(host, pid, started, first_seen=time, arrived=now, source=source)
        if kind == TICK:
            spend_interval(sender, fields, time, now)
        if known is not sender:
            if known is not None:
                self._forget(known)
            self._by_key[host, pid] = sender
            if source is not None:
                self._of_user[source.uid] += 1
        if source is not None and reported is not None:
            self._reported[source] = reported
            if sender.source == source:
                reported.processes[host, pid] = sender
                reported.hosts.add(host)
            if group:
                reported.groups.add(group)
        self._by_pid[pid] = sender
        if time != stamp:
            self.clocks_off += 1
        if is_own:
            count_gap(sender, sequence)
        update(sender, kind, fields, now)
        if kind == STARTED:
            update_identity(sender, fields)
        elif kind == TICK and now - sender.identified >= IDENTITY_INTERVAL_S:
            sender.identified = now
            update_identity(sender, fields)
        sender.arrived = now
        sender.last_seen = max(sender.last_seen, time)
        sender.first_seen = min(sender.first_seen, time)
        return sender, time

    def _admit(
        self, source: Source | None, sender: Sender | None, host: str, group: str, now: float
    ) -> Reported | None:
        """Returns the reports of the source, if the source may also name this process and group.
        `sender` is the process if it is known. Raises `Refused`."""
        if source is None:
            if sender is None and len(self._by_key) >= MAX_SENDERS:
                raise Refused("processes")
            return None
        bounds = source.bounds
        reported = self._reported.get(source) or Reported()
        if group and group not in reported.groups and len(reported.groups) >= bounds.groups:
            raise Refused("groups of a sender")
        if sender is not None:
            return reported
        if len(self._by_key) >= MAX_SENDERS:
            raise Refused("processes")
        if self._of_user[source.uid] >= MAX_SENDERS_OF_USER:
            raise Refused("processes of a user")
        if host not in reported.hosts and len(reported.hosts) >= bounds.hosts:
            raise Refused("hosts of a sender")
        if reported.minute != now // 60:
            reported.minute, reported.new_in_minute = now // 60, 0
        if reported.new_in_minute >= bounds.new_per_minute:
            raise Refused("processes of a sender")
        if len(reported.processes) >= bounds.processes:
            # An ended process gives way: a supervisor reports the death of any number of workers.
            ended = next((each for each in reported.processes.values() if each.ended), None)
            if ended is None:
                raise Refused("processes of a sender")
            self._forget(ended)
        reported.new_in_minute += 1
        return reported

    def forget_silent(self, now: float) -> None:
        for sender in [each for each in self if now - each.arrived > FORGOTTEN_AFTER_S]:
            self._forget(sender)
        # A source without processes of its own is kept until the end of its minute.
        for source, reported in list(self._reported.items()):
            if not reported.processes and reported.minute < now // 60:
                del self._reported[source]

    def _forget(self, sender: Sender) -> None:
        if sender.source is not None:
            self._of_user[sender.source.uid] -= 1
            reported = self._reported.get(sender.source)
            if reported is not None and (
                reported.processes.get((sender.host, sender.pid)) is sender
            ):
                del reported.processes[sender.host, sender.pid]
        self.gone_lost += sender.lost
        self.gone_unsent += sender.unsent
        self.gone_records_lost += sender.records_lost
        self._by_key.pop((sender.host, sender.pid), None)
        if self._by_pid.get(sender.pid) is sender:
            del self._by_pid[sender.pid]

    @property
    def lost(self) -> int:
        """Datagrams that were sent and did not arrive."""
        return self.gone_lost + sum(each.lost for each in self)

    @property
    def unsent(self) -> int:
        """Ticks that could not be sent in time and were merged into later ones."""
        return self.gone_unsent + sum(each.unsent for each in self)

    @property
    def records_lost(self) -> int:
        """Slow requests, holds and collections that processes had no room for."""
        return self.gone_records_lost + sum(each.records_lost for each in self)


def is_of_another_process(sender: Sender, source: Source | None, pid: int) -> bool:
    """Whether the kernel has attested the sender, and attests another process here."""
    return (
        bool(sender.pid_confirmed)
        and source is not None
        and (source.pid, source.is_attested) != (pid, True)
    )


def is_far_ahead(sender: Sender, sequence: int, now: float) -> bool:
    """Whether the sequence number is too high for the time since the last datagram."""
    if sender.sequence is None:
        return False
    return sequence - sender.sequence > most_since(sender, now)


def most_since(sender: Sender, now: float) -> int:
    """The largest plausible number of datagrams or records since the last datagram."""
    return MAX_AT_ONCE + int(MAX_PER_SECOND * max(0.0, now - sender.arrived))


def spend_interval(sender: Sender, fields: dict[str, Any], time: float, now: float) -> None:
    """Raises `Refused` if the intervals of ticks exceed the time since the first tick. The first
    tick may cover the whole time that the recorder was not running."""
    if sender.first_tick is None:
        sender.first_tick = (now, time)
        return
    period_s = fields.get("sample_period")
    period_s = period_s if isinstance(period_s, float) and period_s > 0 else sender.interval_s
    arrived, stamp = sender.first_tick
    # Stamps cover the time that datagrams waited in the socket.
    passed_s = max(now - arrived, time - stamp, 0.0)
    if sender.interval_sum_s + period_s > MAX_OVERLAP * passed_s + MAX_AHEAD_OF_TIME_S:
        raise Refused("longer intervals than the time that passed")
    sender.interval_sum_s += period_s


def is_another(sender: Sender, kind: int, sequence: int | None, started: float) -> bool:
    """Whether the pid now belongs to another process."""
    if started and sender.started:
        # A supervisor that reports for the process may have rounded the time.
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
        # This datagram was counted as lost when a later one overtook it.
        sender.lost -= 1


def update(sender: Sender, kind: int, fields: dict[str, Any], now: float) -> None:
    """Updates the sender from the fields of a datagram."""
    if not sender.started and isinstance(fields.get("process_started_stamp"), float):
        sender.started = fields["process_started_stamp"]
    sender.group = text_of(fields, "process_group", MAX_NAME) or sender.group
    sender.kind = text_of(fields, "process_kind", MAX_NAME) or sender.kind
    for name, attribute in (("ticks_unsent", "unsent"), ("records_lost", "records_lost")):
        count = fields.get(name)
        if isinstance(count, int):
            most = getattr(sender, attribute) + most_since(sender, now)
            setattr(sender, attribute, min(count, most))
    if kind == STOPPED:
        sender.ended = True


def update_identity(sender: Sender, fields: dict[str, Any]) -> None:
    for name in IDENTITY & fields.keys():
        value = fields[name]
        sender.identity[name] = value[:MAX_NAME] if isinstance(value, str) else value


def text_of(fields: dict[str, Any], name: str, limit: int) -> str:
    """A text field, cut to `limit` and made printable, because /metrics and OTLP use such names as
    labels, which terminals show."""
    value = fields.get(name)
    return columns.printable(value[:limit])[:limit] if isinstance(value, str) else ""
