"""Computes the constants of a simulation from samples. Pure: no clock, no process, no file.

A wake-up, for example, is measured from before the call that wakes to after the call that slept,
less the time of both calls without a sleeper. Each constant has its method as text. A constant that
cannot be measured keeps the shipped value, and has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import mean, median
from typing import NamedTuple

from headway_lab.simulated.calibration import Constant, measured, quantiles
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.probe import (
    LONG,
    LONG_US,
    SHORT,
    SHORT_US,
    SWITCH_INTERVAL_US,
    TIMEOUT_US,
    Samples,
)
from headway_lab.simulated.scenario import Distribution

NOT_MEASURED = "the probe does not measure it"
ONE_CORE = "this process may use one core, and that takes two"
# A time of more than this many medians is not a wake-up, because another program had the core.
MOST_MEDIANS = 10
# Quantiles outside these shares are unknown: some hundred samples have too few of them.
LEAST_SHARE, MOST_SHARE = 0.02, 0.98
STEPS = 25
Ways = Mapping[str, Callable[[], Constant]]
WORKLOADS = {
    "pi_digits_ns": "A",
    "find_definitions_ns": "B",
    "bz2_ns": "C",
    "sha1_ns": "sha1",
    "zlib_ns": "zlib",
}


class Missing(Exception):
    """There are no samples of a constant; the text is the reason."""


class Constants(NamedTuple):
    """`also` has figures of the machine that are no constants of the simulation."""

    machine: dict[str, Constant]
    costs: dict[str, Constant]
    also: dict[str, Constant]

    def kept(self) -> dict[str, str]:
        """The names of constants that should have been measured and have the shipped value, with
        the reasons."""
        both = {**self.machine, **self.costs}
        reasons = {name: constant.kept or NOT_MEASURED for name, constant in both.items()}
        return {name: why for name, why in reasons.items() if why != NOT_MEASURED}


class Derivation:
    """The constants from one set of samples."""

    def __init__(self, samples: Samples, cores: int) -> None:
        self._samples = samples
        self._cores = cores

    def constants(self) -> Constants:
        machine: dict[str, Callable[[], Constant]] = {
            "cores": self._cores_there_are,
            "wake_idle_ns": lambda: self._wake_up(SHORT, SHORT_US),
            "wake_idle_long_ns": lambda: self._wake_up(LONG, LONG_US),
            "switch_ns": self._switch,
            "call_ns": lambda: self._call(SHORT, SHORT_US),
            "call_long_ns": lambda: self._call(LONG, LONG_US),
            "slice_ns": self._slice,
            "tick_ns": self._tick,
            "stolen_every_ns": self._stolen_every,
            "stolen_ns": self._stolen,
            "timer_slack_ns": self._timer_slack,
            "check_ns": self._check,
            "take_ns": self._drop_or_take,
            "drop_ns": self._drop_or_take,
        }
        costs: dict[str, Callable[[], Constant]] = {
            "tcp_send_ns": self._tcp_send,
            "tcp_receive_ns": lambda: self._call_of_socket("tcp_receive_ns", "recv() of a byte"),
            "echo_server_ns": self._echo_server,
            "echo_client_ns": self._echo_client,
            "decrement_ns": lambda: self._python("decrement_ns", "the countdown's loop"),
            "udp_send_ns": lambda: self._call_of_socket("udp_send_ns", "send() of a UDP packet"),
            "udp_receive_ns": lambda: self._call_of_socket("udp_receive_ns", "recv() of one"),
            "ping_ns": lambda: self._python("note_ping_ns", "the loop that notes pings"),
            "http_ns": self._http,
            "http_python_ns": self._http_python,
            "http_client_ns": self._http_client,
            **{name: self._workload(work) for name, work in WORKLOADS.items()},
        }
        also: dict[str, Callable[[], Constant]] = {
            "turn_ns": self._turn,
            "handoff_ns": self._handoff,
            "prctl_timer_slack_ns": self._told_slack,
            "echo_server_cpu_ns": lambda: self._echo("server"),
            "echo_client_cpu_ns": lambda: self._echo("client"),
        }
        return Constants(
            self._had(machine, asdict(Machine())),
            self._had(costs, asdict(Costs())),
            self._had(also, {}),
        )

    def _had(self, ways: Ways, shipped: Mapping[str, Distribution]) -> dict[str, Constant]:
        found = {}
        for name in {**shipped, **ways}:
            try:
                if name not in ways:
                    raise Missing(NOT_MEASURED)
                found[name] = ways[name]()
            except Missing as missing:
                if name in shipped:
                    found[name] = Constant(shipped[name], "as shipped", kept=str(missing))
        return found

    def _of(self, name: str) -> list[float]:
        found = self._samples.of.get(name)
        if not found:
            part = name.partition(".")[0]
            takes_two = self._cores == 1 and part in (SHORT, LONG)
            why = ONE_CORE if takes_two else "there are no samples"
            raise Missing(self._samples.failures.get(part, why))
        return found

    def _median(self, name: str) -> float:
        return median(self._of(name))

    # Machine

    def _cores_there_are(self) -> Constant:
        return Constant(self._cores, "sched_getaffinity() of the probe")

    def _wake_up(self, part: str, idle_us: int) -> Constant:
        found = less(self._of(f"{part}.wake_ups_ns"), self._median(f"{part}.alone_ns"))
        how = (
            "from an eventfd_write() until the eventfd_read() of a process on another core is "
            f"over, which was idle for {idle_us} us; less both calls with nobody asleep"
        )
        return measured(distribution(found), how, found)

    def _call(self, part: str, idle_us: int) -> Constant:
        found = less(self._of(f"{part}.calls_ns"), self._median(f"{part}.call_alone_ns"))
        how = (
            "eventfd_write() that wakes a process on another core, which was idle for "
            f"{idle_us} us; less one that wakes nobody"
        )
        return of_median(how, found)

    def _switch(self) -> Constant:
        half_ns = [ns / 2 for ns in self._of("switch.rounds_ns")]
        how = "two processes that wake each other in turns on one core, each turn; less both calls"
        return of_median(how, less(half_ns, self._median("switch.alone_ns")))

    def _slice(self) -> Constant:
        told_ns = self._median("timer.slice_ns")
        if told_ns:
            return Constant(told_ns, "told by sched_getattr()")
        how = "turns of two processes that compute on one core; told by sched_getattr() from 6.12"
        return of_median(how, self._of("turns.turns_ns"))

    def _tick(self) -> Constant:
        how = "resolution of CLOCK_MONOTONIC_COARSE, which moves once a tick"
        return Constant(self._median("timer.tick_ns"), how)

    def _stolen_every(self) -> Constant:
        """The mean distance. Without any interruption it is the whole time that was watched."""
        watched_ns = sum(self._of("interruptions.watched_ns"))
        count = len(self._samples.of["interruptions.stolen_ns"])
        how = (
            "jumps of the clock by more than 20 us for a process that reads it without a pause, "
            "the kernel having counted no switch: how far apart, on average"
        )
        return Constant(watched_ns / max(1, count), how)

    def _stolen(self) -> Constant:
        found = self._of("interruptions.stolen_ns")
        how = "how long these are"
        return measured({"quantiles": means_of_shares(found, STEPS)}, how, found)

    def _timer_slack(self) -> Constant:
        wake_up_ns = self._median(f"{SHORT}.wake_ups_ns") - self._median(f"{SHORT}.alone_ns")
        how = (
            f"how late a lock's timeout of {TIMEOUT_US} us ends on an idle core; less the median "
            "wake-up"
        )
        return of_median(how, less(self._of("timer.late_ns"), wake_up_ns))

    def _told_slack(self) -> Constant:
        return Constant(self._median("timer.slack_ns"), "told by prctl(PR_GET_TIMERSLACK)")

    def _check(self) -> Constant:
        found = self._of("requests.answers_ns")
        how = (
            "from a drop request to the drop, of a thread that adds and subtracts, by the GIL "
            f"meter; switch interval {SWITCH_INTERVAL_US} us"
        )
        return measured(distribution(found), how, found)

    def _drop_or_take(self) -> Constant:
        how = "half of what a call by ctypes takes longer if it drops a free GIL and takes it again"
        return of_median(how, halves(self._of("drops.drop_and_take_ns")))

    # Costs

    def _tcp_send(self) -> Constant:
        """The rest of a request's measured time, so that all its parts add up to the whole. recv()
        contains one of the two drops and takes."""
        rest_ns = (
            self._median("sockets.tcp_receive_ns")
            + self._median("python.answer_echo_ns")
            + self._median("drops.drop_and_take_ns")
            + self._switch_ns()
        )
        how = (
            "processor time of an echo server for a request, its client on the same core; less "
            "recv(), Python, two drops and takes of a GIL, and a switch"
        )
        return of_median(how, less(self._of("echo.server_ns"), rest_ns))

    def _echo_server(self) -> Constant:
        how = "the echo server's loop on files in memory, half a round"
        return of_median(how, halves(self._of("python.answer_echo_ns")))

    def _echo_client(self) -> Constant:
        """The loop, and the drops and takes of the client's GIL, which the simulated client does
        not have."""
        more_ns = 2 * self._median("drops.drop_and_take_ns")
        how = "the echo client's loop on files in memory, and two drops and takes of its GIL"
        return of_median(how, [ns + more_ns for ns in self._of("python.ask_echo_ns")])

    def _call_of_socket(self, name: str, what: str) -> Constant:
        how = f"{what}, both ends in one thread, nobody asleep; less a drop and take of a GIL"
        drop_and_take_ns = self._median("drops.drop_and_take_ns")
        return of_median(how, less(self._of(f"sockets.{name}"), drop_and_take_ns))

    def _python(self, name: str, what: str) -> Constant:
        return of_median(f"{what}, a round; processor time", self._of(f"python.{name}"))

    def _workload(self, work: str) -> Callable[[], Constant]:
        def had() -> Constant:
            how = f"a call of ccbench's workload {work}; processor time"
            return of_median(how, self._of(f"work-{work}.calls_ns"))

        return had

    def _http(self) -> Constant:
        pairs = zip(self._of("serve.server_ns"), self._of("serve.held_ns"), strict=True)
        how = (
            "processor time of `headway serve` for a request of an empty page, less the time for "
            "which it holds the GIL"
        )
        return of_median(how, [max(0.0, used_ns - held_ns) for used_ns, held_ns in pairs])

    def _http_python(self) -> Constant:
        how = "half of the time for which `headway serve` holds the GIL for an empty page"
        return of_median(how, halves(self._of("serve.held_ns")))

    def _http_client(self) -> Constant:
        how = "processor time of the benchmark's clients for a request of an empty page"
        return of_median(how, self._of("serve.client_ns"))

    # Beside them

    def _turn(self) -> Constant:
        how = "turns of two processes that compute on one core"
        return of_median(how, self._of("turns.turns_ns"))

    def _handoff(self) -> Constant:
        """The mean time of a handoff in each round."""
        pairs = zip(self._of("requests.handoff_ns"), self._of("requests.handoffs"), strict=True)
        how = (
            "from a drop of the GIL to the take of another thread that waited, two threads that "
            "compute; the mean of each round"
        )
        found = [ns / handoffs for ns, handoffs in pairs if handoffs]
        if not found:
            raise Missing("the GIL never changed hands")
        return of_median(how, found)

    def _echo(self, who: str) -> Constant:
        how = f"processor time of an echo {who} for a request, both on one core"
        return of_median(how, self._of(f"echo.{who}_ns"))

    def _switch_ns(self) -> float:
        return max(0.0, self._median("switch.rounds_ns") / 2 - self._median("switch.alone_ns"))


def of_median(how: str, samples: Sequence[float]) -> Constant:
    return measured(median(samples), how, samples)


def less(samples: Iterable[float], ns: float) -> list[float]:
    return [max(0.0, sample - ns) for sample in samples]


def halves(samples: Iterable[float]) -> list[float]:
    return [max(0.0, sample / 2) for sample in samples]


def distribution(samples: Sequence[float]) -> Distribution:
    """The samples as a distribution from which a simulation draws."""
    most = MOST_MEDIANS * median(samples)
    ordered = sorted(sample for sample in samples if sample <= most)
    count = len(ordered)
    within = ordered[int(LEAST_SHARE * count) : max(1, round(MOST_SHARE * count))]
    return {"quantiles": quantiles(within, STEPS)}


def means_of_shares(samples: Sequence[float], count: int) -> list[float]:
    """The means of equal shares of the samples. They replace quantiles where a few long samples
    make up much of the sum, because they keep the sum."""
    ordered = sorted(samples)
    count = min(count, len(ordered))
    places = [place * len(ordered) // count for place in range(count + 1)]
    return [mean(ordered[begin:end]) for begin, end in pairwise(places)]
