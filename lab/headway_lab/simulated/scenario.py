"""The input of a simulation: a machine, GILs, and threads that follow scripts.

The terms are those of `lab/crates/simulation`, which runs a scenario and keeps nothing from one run
to the next, so the same scenario has the same outcome. This module does not know experiments, the
origin of figures, or the use of an outcome.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from headway_lab import _native

# Nanoseconds, or their distribution: a number is a constant, {"exponential": mean}, {"uniform":
# [least, most]}, {"lognormal": [median, sigma]}, or {"quantiles": [least, ..., most]}, which are
# evenly spaced and come from measured times.
Distribution = float | Mapping[str, Any]
Step = Mapping[str, Any]


def compute(ns: Distribution) -> Step:
    """Python code: on a core, with the GIL if the thread has one, dropping it soon after a drop
    request."""
    return {"compute": ns}


def compute_until(ns: Distribution) -> Step:
    """The same, until this time has passed since the thread's last `begin`, whichever thread held
    the GIL meanwhile."""
    return {"compute_until": ns}


def call(ns: Distribution) -> Step:
    """C code that runs on a core and keeps the GIL until it ends."""
    return {"call": ns}


def system(ns: Distribution) -> Step:
    """C code or a system call that drops the GIL, runs on a core for this time, and takes the GIL
    again."""
    return {"system": ns}


def sleep(ns: Distribution) -> Step:
    """Drops the GIL, leaves the core for this time, and takes the GIL again."""
    return {"sleep": ns}


def receive(channel: int, ns: Distribution) -> Step:
    """Drops the GIL, waits for a message, runs on a core for this time to receive it, and takes the
    GIL again. Channels are numbered from 0. The thread that has waited longest gets the first
    message."""
    return {"receive": [channel, ns]}


def reply(ns: Distribution) -> Step:
    """Drops the GIL, runs on a core for this time, answers the last received message, and takes the
    GIL again. The answer is dropped if no thread waits for it."""
    return {"reply": ns}


def answer(ns: Distribution) -> Step:
    """C code that keeps the GIL, runs on a core for this time, and answers the last received
    message."""
    return {"answer": ns}


def ask(channel: int, ns: Distribution) -> Step:
    """Drops the GIL, runs on a core for this time, sends a message, waits for the answer, and takes
    the GIL again."""
    return {"ask": [channel, ns]}


def send(channel: int, ns: Distribution) -> Step:
    """The same as `ask`, without an answer."""
    return {"send": [channel, ns]}


def begin() -> Step:
    """Begins a request, or another unit that is counted."""
    return {"begin": None}


def end() -> Step:
    """Ends the unit. It is counted with the share of its time that lies within the window."""
    return {"end": None}


@dataclass(frozen=True)
class Gil:
    """`policy` is any of `headway_simulation::PolicyName`: interval, priority, deadline, ticks,
    requests, beazley."""

    policy: str = "interval"
    switch_interval_ns: float = 5_000_000


@dataclass(frozen=True)
class Thread:
    """`gil` is an index of the scenario's GILs, or None. A script is repeated without end unless it
    is `once`. `cores` are those on which the thread may run; all, if empty."""

    name: str
    script: Sequence[Step]
    gil: int | None = None
    once: bool = False
    starts_ns: float = 0
    cores: Sequence[int] = ()


@dataclass(frozen=True)
class Scenario:
    """Counting starts `begin_ns` after the start. The run ends at `end_ns`, or when all threads
    that run `once` have ended, if there are any. `machine` has the fields of
    `headway_lab.simulated.machine.Machine`. `timeline_events` limits the number of the
    window's events that are kept."""

    machine: Mapping[str, Any]
    gils: Sequence[Gil]
    threads: Sequence[Thread]
    end_ns: float
    begin_ns: float = 0
    seed: int = 1
    timeline_events: int = 0

    def run(self) -> Outcome:
        """Runs the simulation. Raises ValueError for an impossible scenario, with the place and the
        reason."""
        return Outcome(json.loads(_native.simulate(json.dumps(self, default=vars))))


class Durations(TypedDict):
    """SAMPLES: 1,001 quantiles from the least to the greatest; empty without any duration."""

    count: int
    sum_ns: float
    max_ns: float
    quantiles_ns: list[float]


class ThreadOutcome(TypedDict):
    """A simulated thread. `asked` are the drop requests that it made, `computed_ns` is its time in
    compute and call steps. `requests` is a float: see `end`. `finished_ns` is the end of a script
    that runs once. `answer_ns` are the times from the begin of an `ask` to its answer."""

    cpu_ns: float
    held_ns: float
    takes: int
    contended_takes: int
    forced_drops: int
    voluntary_drops: int
    asked: int
    computed_ns: float
    requests: float
    finished_ns: float | None
    wait_ns: Durations
    hold_ns: Durations
    request_ns: Durations
    answer_ns: Durations


class GilOutcome(TypedDict):
    """A simulated GIL. While a thread waits, it is held for `contended_ns` and free for
    `handoff_ns`."""

    held_ns: float
    contended_ns: float
    handoff_ns: float
    switches: int
    drop_requests: int


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation, within the window; see `told`, whose keys are

    - `events`: how many the simulation took; `ended_ns`: when it ended;
    - `threads`, each a `ThreadOutcome`, and `gils`, each a `GilOutcome`;
    - `timeline`: `[at_ns, thread, what]` in order, with what: wait, take, drop, forced_drop, ask,
      forced_wait, forced_wait_over, run, stop, begin, end (what was under way when the window
      opened begins then); and `timeline_lost`, how many came after the last that was kept.
    """

    told: Mapping[str, Any] = field(repr=False)

    @property
    def threads(self) -> list[ThreadOutcome]:
        return list(self.told["threads"])

    @property
    def gils(self) -> list[GilOutcome]:
        return list(self.told["gils"])
