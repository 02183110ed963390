"""`countdown`: one amount of pure-Python work, shared out between threads."""

from __future__ import annotations

from headway.bench.experiment import STOCK, Choice, Experiment, Measured, Parameters, Row
from headway.bench.processes import Setting, Window, program
from headway.bench.results import Results
from headway.bench.statement import Statement
from headway.bench.table import Table, pivot

THREADS = (1, 2, 4, 8)
INTERVALS_S = (0.1, 0.01, 0.005, 0.001, 0.0001, 0.00001, 0.000001)
QUICK_THREADS = (1, 4)
QUICK_INTERVALS_S = (0.005, 0.00001)
SECONDS = 0.6
QUICK_SECONDS = 0.3
TRIAL_DECREMENTS = 2_000_000
TRIALS = 3
# Seconds for 100,000,000 decrements on 2 cores, CPython 3.9 (seeds 002 and 004).
PUBLISHED_DECREMENTS = 100_000_000
PUBLISHED_S = {
    0.1: (7.29, 6.80, 6.50, 6.61),
    0.01: (6.62, 6.61, 7.15, 6.71),
    0.005: (6.53, 6.58, 7.20, 7.19),
    0.001: (7.02, 7.36, 7.56, 7.12),
    0.0001: (6.77, 9.20, 9.36, 9.84),
    0.00001: (6.68, 12.29, 19.15, 30.53),
    0.000001: (6.89, 17.16, 31.68, 86.44),
}


class Countdown(Experiment):
    name = "countdown"
    unit = "s"
    summary = "pure-Python work shared out between threads, by switch interval"
    shows = (
        "A number is counted down to zero by pure Python, as a whole by one thread or in equal "
        "parts by several. Threads bring nothing, since one of them holds the GIL at any time; "
        "and where the switch interval is small, they cost what the switches cost."
    )
    higher_is_better = False

    def rows(self, choice: Choice) -> list[Row]:
        intervals = choice.switch_intervals_s or (
            QUICK_INTERVALS_S if choice.quick else INTERVALS_S
        )
        return [
            Row(
                {"policy": policy, "switch_interval": interval_s, "threads": threads},
                choice.setting(policy, interval_s),
            )
            for policy in choice.policies
            for interval_s in intervals
            for threads in _threads(choice)
        ]

    def calibrate(self, choice: Choice) -> Parameters:
        """How many decrements take one thread the time of a value."""
        seconds = choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS)
        least_s = min(count_down(choice.setting(), 1, TRIAL_DECREMENTS) for _ in range(TRIALS))
        return {"decrements": round(TRIAL_DECREMENTS * seconds / least_s)}

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        threads = row.parameters["threads"]
        return Measured(count_down(row.setting, threads, calibration["decrements"]))

    def published(self, parameters: Parameters) -> float | None:
        """Published for many more decrements: the tables compare ratios."""
        return None

    def tables(self, results: Results) -> list[Table]:
        return [
            pivot(
                results.where(policy=policy),
                f"{policy}: seconds, by switch interval and threads",
                "switch_interval",
                "threads",
                down_text=lambda interval_s: f"{interval_s:g} s",
                across_text=lambda threads: f"{threads} threads",
            )
            for policy in results.distinct("policy")
        ]

    def statements(self, results: Results) -> list[Statement]:
        statements = []
        one = results.measured(policy=STOCK, switch_interval=0.005, threads=1)
        two = results.measured(policy=STOCK, switch_interval=0.005, threads=2)
        if one and two:
            ratio = two.median() / one.median()
            text = "at 5 ms, two threads take as long as one: ratio of the times"
            statements.append(Statement(text, ratio, 0.9, 1.15))
        return statements


def _threads(choice: Choice) -> tuple[int, ...]:
    return choice.threads or (QUICK_THREADS if choice.quick else THREADS)


def count_down(setting: Setting, threads: int, decrements: int) -> float:
    """Seconds for all threads to be done."""
    words = (str(threads), str(decrements), str(setting.switch_interval_s))
    with program(setting, "countdown_threads", *words) as counting:
        counting.answer()
        counting.measure(Window.after(0.0, 0))
        seconds: float = counting.answer()["seconds"]
    return seconds
