"""Measures this machine with this interpreter: samples, by what they are of.

Each part is a program of its own (`programs/`), on cores of its own choice, and plain CPython but
for the one that has the GIL meter on. They take turns for some rounds, so that a moment's load does
not get all samples of one kind. It knows nothing of what is made of the samples.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headway.bench.processes import PROGRAMS, STOCK, BenchmarkError, program

OWN_PROGRAMS = Path(__file__).resolve().parent / "programs"
ROUNDS = 3
# As long as a core is idle between two requests of an echo server, and as a convoy has it be.
SHORT_US, LONG_US = 50, 5_000
TIMEOUT_US = 100
SWITCH_INTERVAL_US = 500
WORKLOADS = ("A", "B", "C", "sha1", "zlib")


class Part(NamedTuple):
    """A program's run. Its samples are named `NAME.` and what the program calls them."""

    name: str
    title: str
    script: str
    words: tuple[int | str, ...]
    folder: Path = OWN_PROGRAMS


@dataclass
class Samples:
    """Of all rounds. `failures` has why a part has none, or not all of them."""

    of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, part: Part, progress: Callable[[str], None]) -> None:
        words = [str(word) for word in part.words]
        try:
            with program(STOCK, part.script, *words, folder=part.folder) as running:
                answer = running.answer()
        except BenchmarkError as error:
            self.failures[part.name] = str(error)
            progress(f"{part.title}: {error}")
            return
        for name, found in answer.items():
            values = found if isinstance(found, list) else [found]
            self.of[f"{part.name}.{name}"] += values


def parts(cores: Sequence[int]) -> list[Part]:
    """Those that these cores can have."""
    one, other = cores[0], cores[-1]
    found = [
        Part("switch", "switches between processes", "wake_ups", (one, one, 0, 1_000)),
        Part("timer", "timed waits", "timed_waits", (one, TIMEOUT_US, 500)),
        Part("turns", "turns on a core", "turns", (one, 500)),
        Part("drops", "drops of a GIL", "drops", (one, 50)),
        Part("requests", "drop requests", "drop_requests", (SWITCH_INTERVAL_US, 60, 300)),
        Part("sockets", "sends and receives", "socket_costs", (one, 1_000)),
        Part("echo", "echoes on one core", "echo_costs", (one, 300)),
        Part("python", "Python between system calls", "python_costs", (one, 30)),
    ]
    for name in WORKLOADS:
        found.append(Part(f"work-{name}", f"workload {name}", "workloads", (name,), PROGRAMS))
    if one != other:
        found += [
            Part("short", "wake-ups after 50 us", "wake_ups", (one, other, SHORT_US, 700)),
            Part("long", "wake-ups after 5 ms", "wake_ups", (one, other, LONG_US, 60)),
        ]
    return found


def measure(progress: Callable[[str], None], rounds: int = ROUNDS) -> Samples:
    samples = Samples()
    planned = parts(sorted(os.sched_getaffinity(0)))
    for number in range(rounds):
        for part in planned:
            if part.name not in samples.failures:
                progress(f"calibrate: round {number + 1} of {rounds}: {part.title}")
                samples.add(part, progress)
    return samples
