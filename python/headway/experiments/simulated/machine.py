"""A simulated machine: cores, an operating system and the costs of a GIL.

The shipped figures are of one machine: a virtual one with two cores, Linux 6.18, CPython 3.13. A
probe of it (`headway simulate --calibrate FILE`) measured them, and `bench/simulated_echo.py
--calibration FILE` refined them on its echo table. Another's are a file for `--calibration`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.experiments.simulated.scenario import Distribution


@dataclass(frozen=True)
class Machine:
    """Nanoseconds, but `cores`."""

    cores: int = 2
    # From a thread's wake-up until it runs, on a core that was idle; and on one that had been so
    # for longer, which sleeps deeper.
    wake_idle_ns: Distribution = field(default_factory=lambda: {"lognormal": [24_500, 0.3]})
    wake_idle_long_ns: Distribution = field(default_factory=lambda: {"lognormal": [126_000, 0.35]})
    long_idle_ns: float = 900_000
    # The extra time of the first system call of a thread that was off all cores for as long.
    cold_ns: Distribution = field(default_factory=lambda: {"uniform": [0, 24_000]})
    # To put another thread on a core.
    switch_ns: Distribution = 4_700
    # The time that the waking thread spends to wake a thread on such a core.
    call_ns: Distribution = 2_100
    call_long_ns: Distribution = 18_700
    # EEVDF: how long a thread runs before another that waits for the core does,
    slice_ns: float = 1_050_000
    # which the kernel looks at so often.
    tick_ns: float = 4_000_000
    # A thread that ran on a core less than so long ago is not moved to an idle one.
    hot_ns: float = 660_000
    # Each core is taken away now and then, by interrupts or a hypervisor: how long apart on
    # average, and for how long.
    stolen_every_ns: float = 9_500_000
    stolen_ns: Distribution = field(default_factory=lambda: {"lognormal": [13_000, 0.4]})
    # How late a timed wait ends: up to so much.
    timer_slack_ns: float = 58_000
    # From a drop request until a thread that runs Python code sees it.
    check_ns: Distribution = field(default_factory=lambda: {"uniform": [350, 13_000]})
    # To take a free GIL, and to drop it.
    take_ns: Distribution = 23
    drop_ns: Distribution = 23
