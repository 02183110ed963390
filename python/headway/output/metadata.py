"""The circumstances of a measurement: machine, kernel, interpreter, and how much of the machine
other programs used meanwhile."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TypedDict, cast

from headway import __version__
from headway.errors import CommandError, reason_of
from headway.programs.interpreters import Interpreter

CPU_INFO = Path("/proc/cpuinfo")
STAT = Path("/proc/stat")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
# Positions in the first line of /proc/stat after its name, see proc(5).
STEAL_TICKS = 7
ALL_TICKS = 8
# Stands for a policy where plain python was measured, without Headway.
STOCK = "stock"
# Above these shares, a result is marked as doubtful.
MAX_LOAD = 0.5
MAX_STEAL = 0.02


class Metadata(TypedDict, total=False):
    """The results' `metadata`: the circumstances of a measurement, or the basis of a simulation.
    `load` and `steal` are shares, `seconds` is the duration; None is unknown."""

    headway: str  #: The version of Headway.
    python: str  #: The version of the measured CPython.
    build: str  #: Its build.
    free_threading: bool  #: Whether it runs without a GIL.
    debug: bool  #: Whether it is a debug build.
    compiler: str  #: The compiler that built it.
    build_options: str  #: The options that it was configured with.
    cpu: str  #: The name of the processor.
    machine: str  #: The architecture.
    cpus: float | None  #: How many processors may be used.
    kernel: str  #: The version of the kernel.
    governor: str | None  #: The frequency governor; null if the kernel has none.
    steal: float | None  #: The share of the processors' time that a hypervisor gave to others.
    load: float | None  #: The load average before the measurement.
    time: str  #: When the measurement began, in UTC.
    seconds: float | None  #: How long it lasted.
    beside: str | None  #: The interpreter of the rows without a GIL, if it is another.
    policies: list[str]  #: The policies that were measured.
    simulated: dict[str, object]  #: The seed and constants of a simulation.
    #: The share of the processors' time that other programs used, in a calibration.
    others: float


class Circumstances:
    """The circumstances from the construction of the object on."""

    def __init__(self) -> None:
        self._began = time.time()
        self._began_s = time.monotonic()
        self._ticks = ticks()
        self._load = os.getloadavg()[0]

    def to_dict(self, interpreter: Interpreter, **more: object) -> Metadata:
        """The results' `metadata`. `steal` is the share of all processors' time that a hypervisor
        gave to other machines. `load` is the machine's load before the measurement."""
        passed = [now - then for now, then in zip(ticks(), self._ticks, strict=True)]
        metadata = {
            "headway": __version__,
            "python": interpreter.version,
            "build": interpreter.build,
            "free_threading": interpreter.free_threading,
            "debug": interpreter.debug,
            "compiler": interpreter.compiler,
            "build_options": interpreter.options,
            "cpu": cpu_model(),
            "machine": platform.machine(),
            "cpus": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "governor": GOVERNOR.read_text().strip() if GOVERNOR.exists() else None,
            "steal": passed[STEAL_TICKS] / max(1, sum(passed)),
            "load": self._load,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
            "seconds": time.monotonic() - self._began_s,
            **more,
        }
        return cast(Metadata, metadata)


def interpreters_in(metadata: Metadata) -> str:
    """The CPython that was measured, and the one for rows without a GIL, if the file names them."""
    if "simulated" in metadata:
        return "a simulated CPython"
    python = metadata.get("python") or "(unknown)"
    name = f"{python}t" if metadata.get("free_threading") else python
    beside = metadata.get("beside")
    return f"CPython {name} and {beside}" if beside else f"CPython {name}"


def doubts(metadata: Metadata) -> list[str]:
    """Reasons to distrust the measurements, one line each, after pyperf's `system check`. Values
    that are missing in a file are not doubted."""
    found = []
    load, cpus = metadata.get("load") or 0.0, metadata.get("cpus") or 1
    if load > MAX_LOAD * cpus:
        found.append(f"the machine was busy before: load {load:.1f} on {cpus} processors")
    steal = metadata.get("steal") or 0.0
    if steal > MAX_STEAL:
        found.append(f"a hypervisor gave {steal:.1%} of the processors' time to others")
    governor = metadata.get("governor") or "performance"
    if governor != "performance":
        found.append(f"the processors' clock follows the load: governor {governor}")
    if metadata.get("debug"):
        found.append("the interpreter is a debug build")
    return found


def ticks() -> list[int]:
    """The ticks of all processors: user, nice, system, idle, waiting for I/O, two kinds of
    interrupts, steal."""
    try:
        line = STAT.read_text().split("\n", 1)[0]
    except OSError as error:
        raise CommandError(
            f"{STAT}: {reason_of(error)}; what the processors do meanwhile is part of a result"
        ) from None
    return [int(each) for each in line.split()[1 : 1 + ALL_TICKS]]


def cpu_model() -> str:
    """The kernel's name of the processor; aarch64 has none."""
    for line in CPU_INFO.read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
