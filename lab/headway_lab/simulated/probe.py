"""Measures this machine with this interpreter. The result is samples by their names.

Most parts are programs of their own (`programs/`), which choose their cores. One part is the web
server under load. The parts take turns for some rounds, so that a short load of the machine does
not affect all samples of one kind. This module does not know how the samples are used.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.programs.processes import ProgramError
from headway_lab.measured.wsgi.load import load_server
from headway_lab.measured.wsgi.server import HEADWAY, Shape
from headway_lab.setting import STOCK, Setting, program

OWN_PROGRAMS = Path(__file__).resolve().parent / "programs"
ROUNDS = 3
# The times for which a core is idle between two requests of an echo server, and in a convoy.
SHORT, LONG = "short", "long"
SHORT_US, LONG_US = 50, 5_000
TIMEOUT_US = 100
SWITCH_INTERVAL_US = 500
WORKLOADS = ("A", "B", "C", "sha1", "zlib")
SERVE_WARM_UP_S, SERVE_S = 0.1, 0.5
EMPTY_PAGE = "/"


class Part(NamedTuple):
    """A part of the probe. Its samples are named `NAME.` and the names that `measure` returns, each
    with one sample or several."""

    name: str
    title: str
    measure: Callable[[], Mapping[str, Any]]


@dataclass
class Samples:
    """The samples of all rounds. `failures` has the reason why a part lacks samples."""

    of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, part: Part, progress: Callable[[str], None]) -> None:
        try:
            found = part.measure()
        except ProgramError as error:
            self.failures[part.name] = str(error)
            progress(f"{part.title}: {error}")
            return
        for name, samples in found.items():
            self.of[f"{part.name}.{name}"] += samples if isinstance(samples, list) else [samples]


def measure(progress: Callable[[str], None], rounds: int = ROUNDS) -> Samples:
    samples = Samples()
    planned = parts(sorted(os.sched_getaffinity(0)))
    for number in range(rounds):
        for part in planned:
            if part.name not in samples.failures:
                progress(f"calibrate: round {number + 1} of {rounds}: {part.title}")
                samples.add(part, progress)
    return samples


def parts(cores: Sequence[int]) -> list[Part]:
    """The parts that can run on these cores."""
    one, other = cores[0], cores[-1]
    found = [
        Part("switch", "switches between processes", run("wake_ups", one, one, 0, 1_000)),
        Part("timer", "timed waits", run("timed_waits", one, TIMEOUT_US, 500)),
        Part("turns", "turns on a core", run("turns", one, 500)),
        Part("interruptions", "interruptions of a core", run("interruptions", one, 700)),
        Part("drops", "drops of a GIL", run("drops", one, 50)),
        Part("requests", "drop requests", run("drop_requests", SWITCH_INTERVAL_US, 60, 300)),
        Part("sockets", "sends and receives", run("socket_costs", one, 1_000)),
        Part("echo", "echoes on one core", run("echo_costs", one, 300)),
        Part("python", "Python between system calls", run("python_costs", one, 30)),
        *(
            Part(f"work-{name}", f"workload {name}", run("calls", one, name, 60))
            for name in WORKLOADS
        ),
        Part("serve", "requests of a web server", serve),
    ]
    if one != other:
        short, long = (
            run("wake_ups", one, other, SHORT_US, 700),
            run("wake_ups", one, other, LONG_US, 60),
        )
        found.append(Part(SHORT, "wake-ups after 50 us", short))
        found.append(Part(LONG, "wake-ups after 5 ms", long))
    return found


def run(script: str, *words: int | str) -> Callable[[], Mapping[str, Any]]:
    """A function that runs a program and returns its only answer."""

    def measure() -> Mapping[str, Any]:
        with program(STOCK, script, *map(str, words), folder=OWN_PROGRAMS) as running:
            return running.answer()

    return measure


def serve() -> Mapping[str, float]:
    """One process with one thread, and an empty page: the processor time of a request, the part of
    it with the GIL, and the processor time of the clients."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ProgramError("this interpreter has no GIL")
    setting = Setting("interval", DEFAULT_SWITCH_INTERVAL_S)
    shape = Shape(HEADWAY, processes=1, threads=1, free_threading=False, setting=setting)
    found = load_server(shape, EMPTY_PAGE, 0, SERVE_WARM_UP_S, SERVE_S)
    shares = {
        "server_ns": "cpu_per_process",
        "held_ns": "gil_held_share",
        "client_ns": "client_cpu_share",
    }
    request_ns = 60 * 1e9 / found.value
    if missing := [share for share in shares.values() if share not in found.figures]:
        raise ProgramError(f"the machine was too busy to tell {missing[0]}")
    return {name: found.figures[share] * request_ns for name, share in shares.items()}
