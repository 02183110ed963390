"""The published claims about `echo`, and Headway's claims about its policies, each with its number.

Computed from results alone. The published claims are about CPython without Headway.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Result, Results
from headway_lab.measured.ccbench import SWIFT_POLICIES
from headway_lab.measured.echo_value import (
    CLIENT_ELSEWHERE,
    FREE,
    FREE_THREADED,
    INTERPRETERS,
    ONE,
    PROCESSES,
    THREADS,
)

# Between these intervals, switch intervals determine the time of a request. Below them, the cost of
# switches does.
LONGEST_S, SHORTEST_S = 0.1, 0.0001
SATURATED_S, BEYOND_S = 0.00001, 0.000001
# Rows of CLIENT_ELSEWHERE show how much of this is an effect of the kernel.
LATE_TIMERS = (
    "Linux lets timers end up to 50 us late, which at 0.1 ms is half an interval, and then the "
    "threads have to take turns on the processor too"
)
STREAKS = (
    "beside requests that take a switch interval there are streaks of quick ones, while the thread "
    "that computes has no processor yet or the client shares the server's; with a processor for "
    "the server alone there are fewer"
)
# The beginning of a statement about all processors, or about separate ones.
WHERE = {FREE: STOCK, CLIENT_ELSEWHERE: f"{STOCK}, a processor for the server alone"}


def statements(results: Results) -> list[Statement]:
    rates = Rates(results)
    published = (
        by_interval,
        by_threads,
        alone,
        saturation,
        cost,
        processes,
        processes_by_number,
        other_modes,
        one_core,
        client_elsewhere,
    )
    found = [statement for about in published for statement in about(rates)]
    for policy in results.distinct("policy"):
        if policy != STOCK:
            found += of_policy(rates, policy)
    return found


class Rates:
    """Medians of the requests a second, by the parameters in which rows differ."""

    def __init__(self, results: Results) -> None:
        self.counts = sorted(results.distinct("cpu_threads"))
        self.intervals_s = sorted(results.distinct("switch_interval"))
        self._results = results

    def row(
        self,
        cpu_threads: int,
        interval_s: float = DEFAULT_SWITCH_INTERVAL_S,
        *,
        policy: str = STOCK,
        mode: str = THREADS,
        cores: str = FREE,
    ) -> Result | None:
        return self._results.measured(
            policy=policy,
            switch_interval=interval_s,
            cpu_threads=cpu_threads,
            mode=mode,
            cores=cores,
        )

    def rate(
        self,
        cpu_threads: int,
        interval_s: float = DEFAULT_SWITCH_INTERVAL_S,
        *,
        policy: str = STOCK,
        mode: str = THREADS,
        cores: str = FREE,
    ) -> float:
        """The rate; NaN if it was not measured."""
        row = self.row(cpu_threads, interval_s, policy=policy, mode=mode, cores=cores)
        return row.median() if row else math.nan

    def of_counts(self, value: Callable[[int], float]) -> dict[int, float]:
        """The values by number of CPU-bound threads, where there are such threads and the value is
        known."""
        found = {count: value(count) for count in self.counts if count}
        return {count: each for count, each in found.items() if math.isfinite(each)}

    def of_intervals(self, value: Callable[[float], float]) -> dict[float, float]:
        """The values by switch interval, where the value is known and has a logarithm."""
        found = {interval_s: value(interval_s) for interval_s in self.intervals_s}
        return {interval_s: each for interval_s, each in found.items() if each > 0}


def by_interval(rates: Rates) -> Iterator[Statement]:
    for cores, where in WHERE.items():
        convoy = {
            interval_s: rate
            for interval_s in rates.intervals_s
            if SHORTEST_S <= interval_s <= LONGEST_S
            and (rate := rates.rate(1, interval_s, cores=cores)) > 0
        }
        if len(convoy) > 1:
            yield Statement(
                f"{where}: requests/s are proportional to 1/interval beside 1 CPU-bound thread: "
                f"slope of the logarithms from {max(convoy):g} to {min(convoy):g} s",
                slope(convoy),
                -1.15,
                -0.8,
                STREAKS if cores == FREE else LATE_TIMERS,
            )


def by_threads(rates: Rates) -> Iterator[Statement]:
    for cores, where in WHERE.items():
        factors = [
            ratio(
                rates.rate(2 * count, interval_s, cores=cores),
                rates.rate(count, interval_s, cores=cores),
            )
            for interval_s in rates.intervals_s
            if SHORTEST_S <= interval_s <= LONGEST_S
            for count in rates.counts
            if count and 2 * count in rates.counts
        ]
        known = [factor for factor in factors if factor > 0]
        if known:
            yield Statement(
                f"{where}: requests/s halve as CPU-bound threads double: factor of a doubling, "
                "geometric mean",
                geometric_mean(known),
                0.35,
                0.7,
                STREAKS if cores == FREE else "",
            )


def alone(rates: Rates) -> Iterator[Statement]:
    found = rates.of_intervals(lambda interval_s: rates.rate(0, interval_s))
    if len(found) > 1:
        yield Statement(
            "stock: without CPU-bound threads the interval changes nothing: its slowest of its "
            "fastest",
            min(found.values()) / max(found.values()),
            0.8,
        )


def saturation(rates: Rates) -> Iterator[Statement]:
    growth = ratio(rates.rate(1, SATURATED_S), rates.rate(1, SHORTEST_S))
    if growth > 0:
        yield Statement(
            "stock: from 0.1 ms to 0.01 ms requests/s grow by less than the interval shrinks: "
            "factor",
            growth,
            1,
            7,
        )
    beyond = ratio(rates.rate(1, BEYOND_S), rates.rate(1, SATURATED_S))
    if beyond > 0:
        yield Statement(
            "stock: from 0.01 ms to 0.001 ms they no longer grow: factor", beyond, 0.3, 1.25
        )


def cost(rates: Rates) -> Iterator[Statement]:
    # Without any load, processors sleep between requests, and waking them takes longer than the
    # requests do. Beside a computing process they stay awake.
    without = (rates.rate(0), rates.rate(1, mode=PROCESSES))
    known = [rate for rate in without if rate > 0]
    times = ratio(max(known), rates.rate(1)) if known else math.nan
    if times > 0:
        yield Statement(
            "stock: 1 CPU-bound thread costs an echo server most of its requests at 5 ms: times "
            "fewer than without, or than beside 1 CPU-bound process if that is more",
            times,
            100,
            why=STREAKS,
        )


def processes(rates: Rates) -> Iterator[Statement]:
    share = ratio(rates.rate(1, mode=PROCESSES), rates.rate(0))
    if share > 0:
        yield Statement(
            "1 CPU-bound process instead costs little: requests/s of those without", share, 0.4
        )


def processes_by_number(rates: Rates) -> Iterator[Statement]:
    found = rates.of_counts(lambda count: rates.rate(count, mode=PROCESSES))
    if len(found) > 1 and any(found.values()):
        yield Statement(
            "the number of CPU-bound processes barely matters: the slowest of the fastest",
            min(found.values()) / max(found.values()),
            0.5,
            why="with more processes than processors the kernel gives each its share, the server "
            "and its client among them",
        )


def other_modes(rates: Rates) -> Iterator[Statement]:
    for mode, name in (
        (INTERPRETERS, "CPU-bound sub-interpreters with GILs of their own"),
        (FREE_THREADED, "CPU-bound threads without a GIL"),
    ):
        shares = rates.of_counts(
            lambda count, mode=mode: ratio(  # type: ignore[misc]
                rates.rate(count, mode=mode), rates.rate(count, mode=PROCESSES)
            )
        )
        if shares:
            yield Statement(
                f"{name} are like processes: requests/s of theirs, geometric mean",
                geometric_mean(list(shares.values())),
                0.5,
                2,
            )


def one_core(rates: Rates) -> Iterator[Statement]:
    times = ratio(rates.rate(1, cores=ONE), rates.rate(1))
    if times > 0:
        yield Statement(
            "stock: server and client on one processor do better beside 1 CPU-bound thread: times "
            "those on all",
            times,
            10,
            why=STREAKS,
        )
    found = rates.of_counts(lambda count: rates.rate(count, cores=ONE))
    if len(found) > 1 and found.get(1):
        most = max(found)
        yield Statement(
            f"stock: on one processor requests/s collapse: {most} CPU-bound threads of 1",
            found[most] / found[1],
            high=0.1,
        )


def client_elsewhere(rates: Rates) -> Iterator[Statement]:
    share = ratio(rates.rate(1, cores=CLIENT_ELSEWHERE), rates.rate(1))
    if share > 0:
        yield Statement(
            "stock: a processor for the server alone does not help, 1 CPU-bound thread: requests/s "
            "of those on all",
            share,
            0.4,
            2.5,
            STREAKS,
        )


def of_policy(rates: Rates, policy: str) -> Iterator[Statement]:
    def rate(count: int, interval_s: float = DEFAULT_SWITCH_INTERVAL_S) -> float:
        return rates.rate(count, interval_s, policy=policy)

    free = ratio(rate(0), rates.rate(0))
    if free > 0:
        yield Statement(
            f"{policy}: costs nothing without CPU-bound threads: requests/s of stock's", free, 0.85
        )
    if policy not in SWIFT_POLICIES:
        # Headway measures CPython's own rule and does not change it, so there is a convoy.
        return
    times = rates.of_counts(lambda count: ratio(rate(count), rates.rate(count)))
    if times:
        yield Statement(
            f"{policy}: times stock's requests/s at 5 ms, the least beside {counts_text(times)}",
            min(times.values()),
            100,
            why=STREAKS,
        )
    shares = rates.of_counts(lambda count: ratio(rate(count), rates.rate(count, mode=PROCESSES)))
    if shares:
        yield Statement(
            f"{policy}: as many requests/s as beside processes: share of theirs, the least beside "
            f"{counts_text(shares)}",
            min(shares.values()),
            0.7,
        )
    kept = rates.of_counts(lambda count: work_of_left(rates.row(count, policy=policy)))
    if kept:
        yield Statement(
            f"{policy}: CPU-bound threads get the GIL's time that requests and handoffs leave: "
            f"share of it, the least beside {counts_text(kept)}",
            min(kept.values()),
            0.8,
        )
    found = rates.of_intervals(lambda interval_s: rate(1, interval_s))
    if len(found) > 1:
        yield Statement(
            f"{policy}: requests/s do not depend on the interval beside 1 CPU-bound thread: the "
            "slowest of the fastest",
            min(found.values()) / max(found.values()),
            0.5,
        )


def work_of_left(row: Result | None) -> float:
    return ratio(row.median("work_share"), row.median("left_share")) if row else math.nan


def ratio(value: float, other: float) -> float:
    """NaN if one of the values is unknown, or if the divisor is 0."""
    return value / other if other else math.nan


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; 0 if one of the values is 0."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if min(values) > 0 else 0.0


def slope(rates: dict[float, float]) -> float:
    """The slope of the straight line through the logarithms, by least squares."""
    points = [(math.log(interval_s), math.log(rate)) for interval_s, rate in rates.items()]
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def counts_text(found: dict[int, float]) -> str:
    *others, last = map(str, found)
    text = f"{', '.join(others)} or {last}" if others else last
    return f"{text} CPU-bound thread" if text == "1" else f"{text} CPU-bound threads"
