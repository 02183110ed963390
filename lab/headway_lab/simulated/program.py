"""Predicts the effect of a change on the threads of a program, from a report of `headway run
--json`.

A thread computes with the GIL, is away from it, and so on. A thread that never drops the GIL by
itself computes all the time. A report has only sums. So a prediction covers the effect of seeds and
the error of histograms, and, if drop requests cut bursts, both ways in which a burst may end. This
module does not know command lines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median_high
from typing import Any, NamedTuple

from headway.errors import CommandError
from headway.output.drawing import number
from headway.recorder.records import histogram as records
from headway.report import units
from headway.report.columns import aligned
from headway.report.model import GilReport, Histogram, ThreadRow
from headway_lab.simulated.fitting import NS, quantiles
from headway_lab.simulated.intervals import REPRODUCED, Interval, covered, hull, widened
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.recording import unfit
from headway_lab.simulated.samples import gathered
from headway_lab.simulated.scenario import (
    Gil,
    Scenario,
    Step,
    Thread,
    begin,
    compute,
    compute_until,
    end,
    sleep,
)
from headway_lab.simulated.service import spread

LEAST_WALL_S = 0.5
LEAST_WAITS = 100
# Threads with a smaller share do not affect others.
LEAST_SHARE = 0.001
LEAST_TAKES = 20
# Threads with a smaller share have their turns in bursts, such as a main thread while it imports.
BUSY_SHARE = 0.05
WARM_UP_S = 0.3
SECONDS = 2.0
# If a larger share of the bursts was cut, a clock may have ended them.
RARELY_CUT = 0.05
MOST_MISFIT = 0.5
# The figures of a thread. Turns are its drops per second, voluntary and forced.
FIGURES = ("turns", "held", "wait_s", "wait_p95_s")
TITLES = ("turns/s", "GIL held", "wait", "p95")


class Rule(NamedTuple):
    policy: str
    switch_interval_s: float
    cores: int | None

    def __str__(self) -> str:
        return f"{self.switch_interval_s * 1e3:g} ms, {self.policy}"


@dataclass(frozen=True)
class ThreadProfile:
    """The behaviour of a thread: bursts with these quantiles, and `away_s` away from the GIL after
    each burst. If `away_s` is None the thread never leaves."""

    name: str
    burst_s: tuple[float, ...]
    away_s: float | None
    bursts: int
    is_cut: bool

    def script(self, ends_by_clock: bool) -> list[Step]:
        if self.away_s is None:
            return [begin(), compute(1e6), end()]
        work = compute_until if ends_by_clock and self.is_cut else compute
        away = sleep({"exponential": max(1.0, self.away_s * NS)})
        return [begin(), work(spread(self.burst_s)), end(), away]

    def resampled(self, choose: random.Random) -> ThreadProfile:
        count = max(2, min(self.bursts, 1_000))
        drawn = sorted(choose.choices(self.burst_s, k=count))
        points = tuple(drawn[round(n / 100 * (count - 1))] for n in range(101))
        by = max(0.1, choose.gauss(1.0, count**-0.5))
        away_s = None if self.away_s is None else self.away_s * by
        return replace(self, burst_s=points, away_s=away_s)


Row = dict[str, float]


@dataclass(frozen=True)
class ProgramPrediction:
    """For each thread: the measured figures, those of a simulation of the report, and the
    predictions for each rule."""

    recorded: Rule
    measured: dict[str, Row]
    simulated: dict[str, dict[str, Interval]]
    predictions: list[tuple[Rule, dict[str, dict[str, Interval]]]]
    is_open: bool

    def lines(self) -> list[str]:
        names = list(self.measured)
        rows = [["", "", *TITLES]]
        for name in names:
            rows.append([name, "measured", *(said(f, self.measured[name][f]) for f in FIGURES)])
            rows.append(["", "simulated", *spans(self.simulated[name])])
            rows += [["", str(rule), *spans(found[name])] for rule, found in self.predictions]
        work = (
            "Bursts were cut by drop requests, and whether the clock ends them is not in a report; "
            "intervals cover both."
            if self.is_open
            else "Bursts are taken for fixed work: hardly any was cut."
        )
        return [
            f"Recorded: {self.recorded}",
            work,
            "",
            *aligned(rows, texts=len(rows[0])),
            "",
            self._reproduced(),
        ]

    def _reproduced(self) -> str:
        off = [
            f"{name}'s {title} {self.simulated[name][figure].middle / real - 1:+.0%}"
            for name in self.measured
            for figure, title in zip(FIGURES[:2], TITLES[:2], strict=True)
            if (real := self.measured[name][figure])
            and abs(self.simulated[name][figure].middle / real - 1) > REPRODUCED
        ]
        if not off:
            return (
                "A simulation of the recorded setting has turns and holds within "
                f"{REPRODUCED:.0%} of the measured ones."
            )
        return (
            f"A simulation of the recorded setting differs from the measured figures: "
            f"{', '.join(off)}. The intervals are wider because of this."
        )

    def to_dict(self) -> dict[str, Any]:
        def threads(found: dict[str, dict[str, Interval]]) -> dict[str, Any]:
            return {
                name: {figure: each._asdict() for figure, each in row.items()}
                for name, row in found.items()
            }

        return {
            "kind": "program",
            "recorded": self.recorded._asdict(),
            "measured": self.measured,
            "simulated": threads(self.simulated),
            "predictions": [
                {"configuration": rule._asdict(), "threads": threads(found)}
                for rule, found in self.predictions
            ],
        }


def said(figure: str, value: float) -> str:
    if figure == "held":
        return f"{value:.0%}"
    return number(value) if figure == "turns" else units.seconds(value)


def spans(found: dict[str, Interval]) -> list[str]:
    return [
        f"{said(name, found[name].middle)} ({said(name, found[name].low)} to "
        f"{said(name, found[name].high)})"
        for name in FIGURES
    ]


def check_no_server_options(options: Any) -> None:
    if options.shape:
        raise CommandError(
            "--shape: the recording is of a program, which has no processes x threads", exit_code=2
        )


def predict_program(
    path: str,
    report: GilReport,
    policies: Sequence[str],
    switch_intervals_s: Sequence[float],
    cores: int | None,
    machine: Machine,
    seed: int,
    values: int,
    progress: Callable[[str], None],
) -> ProgramPrediction:
    """Raises Unfit if the report cannot support a prediction."""
    check(path, report)
    rows = {row.name: row for row in report.threads if is_of_consequence(row, report)}
    profiles = [profile_of(row, report.wall_s) for row in rows.values()]
    recorded = Rule(report.policy, report.switch_interval_s or 0.0, None)
    measured = {name: measured_of(row, report.wall_s) for name, row in rows.items()}
    is_open = any(each.is_cut for each in profiles)
    models = [
        Model(profiles, ends_by_clock, machine, seed, values)
        for ends_by_clock in ((False, True) if is_open else (False,))
    ]
    progress("as recorded")
    before = [model.run(recorded) for model in models]
    simulated = combined([each.intervals() for each in before])
    check_reproduced(path, report, simulated)
    predictions = []
    for rule in alternatives(recorded, policies, switch_intervals_s, cores):
        progress(str(rule))
        found = [
            model.run(rule).beside(base, measured)
            for model, base in zip(models, before, strict=True)
        ]
        predictions.append((rule, combined(found)))
    return ProgramPrediction(recorded, measured, simulated, predictions, is_open)


def alternatives(
    recorded: Rule,
    policies: Sequence[str],
    switch_intervals_s: Sequence[float],
    cores: int | None,
) -> list[Rule]:
    """All combinations of the given settings, without duplicates. A setting without a value stays
    as recorded."""
    found = [
        Rule(policy, interval_s, cores)
        for policy, interval_s in product(
            policies or [recorded.policy], switch_intervals_s or [recorded.switch_interval_s]
        )
    ]
    return [each for each in dict.fromkeys(found) if each != recorded]


def check_reproduced(
    path: str, report: GilReport, simulated: dict[str, dict[str, Interval]]
) -> None:
    """Checks the simulation against the report. A thread that hardly holds the GIL, and yet waits
    for it all the time, is checked by its turns."""
    for row in report.threads:
        if not is_of_consequence(row, report):
            continue
        name, measured = row.name, measured_of(row, report.wall_s)
        held, turns = simulated[name]["held"].middle, simulated[name]["turns"].middle
        if abs(held - measured["held"]) > MOST_MISFIT * max(measured["held"], 0.1):
            unfit(
                path,
                f"simulated as recorded the thread {name} holds the GIL for {held:.0%} of the "
                f"time, and it did for {measured['held']:.0%}",
            )
        is_busy = row.held_s + row.waited_s >= BUSY_SHARE * report.wall_s
        if is_busy and abs(turns - measured["turns"]) > MOST_MISFIT * measured["turns"]:
            unfit(
                path,
                f"simulated as recorded the thread {name} has {number(turns)} turns/s, and it had "
                f"{number(measured['turns'])}",
            )


def check(path: str, report: GilReport) -> None:
    if report.gil != "enabled":
        unfit(path, "it is of a free-threaded build, whose threads wait for no GIL")
    if len(report.gils) != 1:
        unfit(path, f"it has {len(report.gils)} GILs, and one can be predicted")
    waits = report.gils[0].contended_takes
    if waits < LEAST_WAITS:
        unfit(path, f"its threads waited {waits} times for the GIL; {LEAST_WAITS} are needed")
    if report.wall_s < LEAST_WALL_S:
        unfit(path, f"it is of {units.seconds(report.wall_s)}; {LEAST_WALL_S:g} s are needed")
    kept = [row for row in report.threads if is_of_consequence(row, report)]
    if any(row.folded for row in kept):
        unfit(path, "rows of it are of several threads together that had ended")
    for row in kept:
        if not row.voluntary_drops + row.forced_drops or not row.hold.sum_s:
            unfit(path, f"the thread {row.name} took the GIL, and no holds of it were counted")
    names = [row.name for row in kept]
    if len(set(names)) < len(names):
        unfit(path, "several of its threads have one name")


def is_of_consequence(row: ThreadRow, report: GilReport) -> bool:
    busy_s = row.held_s + row.waited_s
    return busy_s >= LEAST_SHARE * report.wall_s and row.takes >= LEAST_TAKES


def profile_of(row: ThreadRow, wall_s: float) -> ThreadProfile:
    bursts, cuts = row.voluntary_drops, row.forced_drops
    # A thread that has ended has dropped the GIL once at its end.
    if bursts * 10 < cuts:
        return ThreadProfile(row.name, (0.001,), None, max(cuts, 1), False)
    points = quantiles(telemetry_histogram(row.hold))
    by = row.held_s / bursts / (row.hold.sum_s / row.hold.count)
    away_s = max(0.0, wall_s - row.held_s - row.waited_s - row.forced_waited_s) / bursts
    is_cut = cuts > RARELY_CUT * bursts
    return ThreadProfile(row.name, tuple(each * by for each in points), away_s, bursts, is_cut)


def telemetry_histogram(histogram: Histogram) -> records.Histogram:
    """The histogram under the keys of a telemetry record."""
    return {
        "count": histogram.count,
        "sum": histogram.sum_s,
        "min": histogram.min_s or 0.0,
        "max": histogram.max_s or 0.0,
        "p50": histogram.p50_s or 0.0,
        "p90": histogram.p90_s or 0.0,
        "p95": histogram.p95_s or 0.0,
        "p99": histogram.p99_s or 0.0,
        "p999": histogram.p999_s or 0.0,
        "buckets": histogram.buckets,
    }


def measured_of(row: ThreadRow, wall_s: float) -> Row:
    waits = row.wait
    return {
        "turns": (row.voluntary_drops + row.forced_drops) / wall_s,
        "held": row.held_s / wall_s,
        "wait_s": waits.sum_s / waits.count if waits.count else 0.0,
        "wait_p95_s": waits.p95_s or 0.0,
    }


@dataclass(frozen=True)
class Runs:
    """The threads' figures in each simulation of one rule."""

    found: list[dict[str, Row]]

    def intervals(self) -> dict[str, dict[str, Interval]]:
        return {
            name: {f: Interval(*covered(self.sorted(name, f))) for f in FIGURES}
            for name in self.found[0]
        }

    def sorted(self, name: str, figure: str) -> list[float]:
        return sorted(each[name][figure] for each in self.found)

    def beside(self, before: Runs, measured: dict[str, Row]) -> dict[str, dict[str, Interval]]:
        """The intervals of this rule, scaled by measured to simulated figures of `before`, and
        widened to include the unscaled median."""
        intervals = self.intervals()
        for name, row in intervals.items():
            for figure, direct in row.items():
                usual, real = median_high(before.sorted(name, figure)), measured[name][figure]
                by = real / usual if usual and real else 1.0
                low, middle, high = (each * by for each in direct)
                row[figure] = widened(
                    Interval(min(low, direct.middle), middle, max(high, direct.middle))
                )
            # No thread holds the GIL for more than all of the time.
            row["held"] = Interval(*(min(1.0, each) for each in row["held"]))
        return intervals


class Model:
    def __init__(
        self,
        profiles: Sequence[ThreadProfile],
        ends_by_clock: bool,
        machine: Machine,
        seed: int,
        values: int,
    ) -> None:
        choose = random.Random(seed)
        self._draws = [
            ([each.resampled(choose) for each in profiles] if n else list(profiles), seed + n)
            for n in range(values)
        ]
        self._ends_by_clock = ends_by_clock
        self._machine = machine

    def run(self, rule: Rule) -> Runs:
        return Runs([self._simulate(rule, profiles, seed) for profiles, seed in self._draws])

    def _simulate(self, rule: Rule, profiles: Sequence[ThreadProfile], seed: int) -> dict[str, Row]:
        machine = replace(self._machine, cores=rule.cores or self._machine.cores)
        scenario = Scenario(
            vars(machine),
            [Gil(rule.policy, rule.switch_interval_s * NS)],
            [Thread(each.name, each.script(self._ends_by_clock), gil=0) for each in profiles],
            begin_ns=WARM_UP_S * NS,
            end_ns=(WARM_UP_S + SECONDS) * NS,
            seed=seed,
        )
        found = {}
        for profile, thread in zip(profiles, scenario.run().threads, strict=True):
            waits = gathered([thread["wait_ns"]])
            found[profile.name] = {
                "turns": (thread["voluntary_drops"] + thread["forced_drops"]) / SECONDS,
                "held": thread["held_ns"] / NS / SECONDS,
                "wait_s": waits.mean_s if waits else 0.0,
                "wait_p95_s": waits.quantile_s(0.95) if waits else 0.0,
            }
        return found


def combined(
    found: Sequence[dict[str, dict[str, Interval]]],
) -> dict[str, dict[str, Interval]]:
    return {
        name: {figure: hull([each[name][figure] for each in found]) for figure in FIGURES}
        for name in found[0]
    }
