"""A simulated machine: cores, an operating system and the costs of a GIL.

The shipped constants describe one machine: a virtual one with two cores, Linux 6.18, CPython 3.13.
A probe (`headway simulate --calibrate FILE`) measured them, and `bench/simulated_echo.py
--calibration FILE` refined the wake-ups, `cold_ns` and the costs of TCP on the machine's echo table
without a policy. For another machine there is a file for `--calibration`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headway_lab.simulated.scenario import Distribution


@dataclass(frozen=True)
class Machine:
    """All values are in nanoseconds, except `cores`."""

    cores: int = 2
    # The time from a thread's wake-up until it runs, on a core that was idle; and on one that was
    # idle for longer, and sleeps more deeply.
    wake_idle_ns: Distribution = field(default_factory=lambda: {"lognormal": [27_500, 0.27]})
    wake_idle_long_ns: Distribution = field(default_factory=lambda: {"lognormal": [69_000, 0.35]})
    long_idle_ns: float = 900_000
    # The extra time of the first system call of a thread that was off all cores for this long; of a
    # thread that was off for less, a part of it.
    cold_ns: Distribution = field(default_factory=lambda: {"uniform": [0, 37_000]})
    # The time to switch a core to another thread.
    switch_ns: Distribution = 2_400
    # The time that a thread spends to wake another one on such a core.
    call_ns: Distribution = 9_000
    call_long_ns: Distribution = 20_000
    # EEVDF: the time for which a thread runs before another one that waits for the core,
    slice_ns: float = 1_050_000
    # and the period at which the kernel checks this.
    tick_ns: float = 4_000_000
    # A thread that ran on a core less than this time ago is not moved to an idle one.
    hot_ns: float = 660_000
    # Interrupts or a hypervisor take each core away from time to time: the mean distance, and the
    # duration.
    stolen_every_ns: float = 3_000_000
    stolen_ns: Distribution = field(default_factory=lambda: {"lognormal": [35_000, 0.5]})
    # The longest delay of the end of a timed wait.
    timer_slack_ns: float = 69_500
    # The time from a drop request until a thread that runs Python code sees it.
    check_ns: Distribution = field(default_factory=lambda: {"uniform": [800, 16_000]})
    # The time to take a free GIL, and to drop it.
    take_ns: Distribution = 36
    drop_ns: Distribution = 36
    # Under `priority` and `deadline`: the additional time of a take after a wait or while others
    # wait, and of a drop while others wait. In the measured echo table an I/O-bound thread holds
    # for about 500 ns each time, of which the probe of that day explains 46 ns; a take and a drop
    # share the rest.
    contended_ns: Distribution = 225
    # As `check_ns`, for a request under these policies. It is estimated from the median request of
    # the same table, which leaves about 1 us for each of two preemptions; no probe measures it.
    answer_ns: Distribution = 300
