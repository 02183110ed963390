"""`countdown`: a fixed amount of pure-Python work, divided among threads.

Linux may let a thread's timers fire up to 50 microseconds late (its timer slack). The system of the
published figures did not. So intervals below that are measured twice: with the default `timers`,
and with exact ones.
"""

from __future__ import annotations

import math
from itertools import pairwise

from headway.errors import CommandError
from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.output.table import Chart, Table, text_of
from headway.programs.processes import Window
from headway_lab.arrangement import pivot, series_by, series_of
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.measured.sharing import cores, scaling, several, threads_text
from headway_lab.setting import Setting, program

THREADS = (1, 2, 4, 8)
INTERVALS_S = (0.1, 0.01, 0.005, 0.001, 0.0001, 0.00001, 0.000001)
QUICK_THREADS = (1, 4)
# Below this interval the timer slack is a large part of the interval.
SMALL_INTERVAL_S = 0.0001
QUICK_SMALL_INTERVAL_S = 0.00001
SECONDS = 0.4
QUICK_SECONDS = 0.3
# A value ends after this multiple of one thread's time, however much is left to count.
PATIENCE = 6
TRIAL_DECREMENTS = 2_000_000
TRIAL_LIMIT_S = 5.0
TRIALS = 3
# The least number, so that every thread gets some, even in short values.
MIN_DECREMENTS = 100_000
UNIT_DECREMENTS = 100_000_000
# Seconds for this number of decrements on 2 cores, CPython 3.9 (seeds 002 and 004), by
# PUBLISHED_THREADS.
PUBLISHED_THREADS = (1, 2, 4, 8)
PUBLISHED_S = {
    0.1: (7.29, 6.80, 6.50, 6.61),
    0.01: (6.62, 6.61, 7.15, 6.71),
    0.005: (6.53, 6.58, 7.20, 7.19),
    0.001: (7.02, 7.36, 7.56, 7.12),
    0.0001: (6.77, 9.20, 9.36, 9.84),
    0.00001: (6.68, 12.29, 19.15, 30.53),
    0.000001: (6.89, 17.16, 31.68, 86.44),
}
# The table by threads alone: the best of three values, at the default interval.
PUBLISHED_BEST_S = (6.52, 6.57, 6.59, 6.58)
BEST = "Published at 5 ms also, the best of three: " + ", ".join(
    f"{seconds} s by {threads}"
    for threads, seconds in zip(PUBLISHED_THREADS, PUBLISHED_BEST_S, strict=True)
)
SLACK = (
    "Linux lets timers end up to 50 us late, so intervals below that are all alike; with exact "
    "timers they are not"
)
EXACT = (
    "Timers end when they are due, as on the system of the published figures; by default Linux "
    "lets them end up to 50 us late (PR_SET_TIMERSLACK)."
)


class Countdown(Experiment):
    name = "countdown"
    unit = "s per 100,000,000 decrements"
    summary = "pure-Python work shared out between threads, by switch interval"
    shows = (
        "A number is counted down to zero by pure Python, as a whole by one thread or in equal "
        "parts by several. Threads bring nothing, since one of them holds the GIL at any time; "
        "and where the switch interval is small, they cost what the switches cost."
    )
    higher_is_better = False

    def rows(self, choice: Choice) -> list[Row]:
        if 0 in _threads(choice):
            raise CommandError("--threads 0: countdown needs a thread that counts", exit_code=2)
        rows = [
            Row(
                _parameters(policy, interval_s, threads, timers),
                choice.setting(policy, interval_s),
            )
            for policy in choice.policies
            for timers in ("default", "exact")
            for interval_s in _intervals(choice, policy, timers)
            for threads in _threads(choice)
        ]
        no_free_threading = choice.no_free_threading
        setting = choice.setting() if no_free_threading else choice.free_threaded_setting()
        return rows + [
            Row(
                _parameters(STOCK, DEFAULT_SWITCH_INTERVAL_S, threads, mode="free-threaded"),
                setting,
                no_free_threading,
            )
            for threads in _threads(choice)
        ]

    def calibrate(self, choice: Choice) -> Parameters:
        """The number of decrements that take one thread the time of a value."""
        setting = choice.setting()
        least_s = min(
            count_down(setting, 1, TRIAL_DECREMENTS, TRIAL_LIMIT_S) for _ in range(TRIALS)
        )
        decrements = round(UNIT_DECREMENTS * _seconds(choice) / least_s)
        return {"decrements": max(decrements, MIN_DECREMENTS), **cores()}

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        exact = row.parameters["timers"] == "exact"
        return Measured(
            count_down(
                row.setting,
                row.parameters["threads"],
                calibration["decrements"],
                PATIENCE * _seconds(choice),
                exact_timers=exact,
            )
        )

    def published(self, parameters: Parameters) -> float | None:
        interval_s, threads = parameters["switch_interval"], parameters["threads"]
        if parameters["policy"] != STOCK or parameters["mode"] != "threads":
            return None
        if interval_s not in PUBLISHED_S or threads not in PUBLISHED_THREADS:
            return None
        return PUBLISHED_S[interval_s][PUBLISHED_THREADS.index(threads)]

    def tables(self, results: Results) -> list[Table]:
        tables = [
            pivot(
                found,
                f"{title}: seconds per 100,000,000 decrements, by switch interval and threads",
                "switch_interval",
                "threads",
                down_text=_interval_text,
                across_text=threads_text,
                note=_note(found),
            )
            for title, found in _with_a_gil(results)
        ]
        free = _measured_free_threaded(results)
        if free.rows:
            title = "free-threaded: seconds per 100,000,000 decrements, by threads"
            tables.append(pivot(free, title, "mode", "threads", across_text=threads_text))
        return tables

    def charts(self, results: Results) -> list[Chart]:
        charts = []
        free = _measured_free_threaded(results)
        for title, found in _with_a_gil(results):
            lines = series_by(found, "switch_interval", "threads")
            if free.rows:
                lines.append(series_of(free, "free-threaded", "threads"))
            title = f"{title}: the same work by more threads, a line for each switch interval"
            charts.append(Chart(title, "threads", self.unit, lines, log_x=True, log_y=True))
        return charts

    def statements(self, results: Results) -> list[Statement]:
        found = [
            *_no_gain(results),
            *_growth(results),
            *_policies(results),
            *scaling("free-threaded", results.where(mode="free-threaded")),
        ]
        return [each for each in found if not math.isnan(each.value)]


def _parameters(
    policy: str,
    interval_s: float,
    threads: int,
    timers: str = "default",
    mode: str = "threads",
) -> Parameters:
    return {
        "policy": policy,
        "switch_interval": interval_s,
        "threads": threads,
        "mode": mode,
        "timers": timers,
    }


def _threads(choice: Choice) -> tuple[int, ...]:
    return choice.threads or (QUICK_THREADS if choice.quick else THREADS)


def _seconds(choice: Choice) -> float:
    return choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS)


def _intervals(choice: Choice, policy: str, timers: str) -> tuple[float, ...]:
    """The intervals for a kind of timers: timer slack is visible only at small intervals."""
    if choice.quick and choice.switch_intervals_s is None:
        if timers == "default":
            return (DEFAULT_SWITCH_INTERVAL_S,)
        return (QUICK_SMALL_INTERVAL_S,) if policy == STOCK else ()
    intervals_s = choice.switch_intervals_s or INTERVALS_S
    if timers == "default":
        return intervals_s
    return tuple(each for each in intervals_s if each <= SMALL_INTERVAL_S)


def count_down(
    setting: Setting, threads: int, decrements: int, limit_s: float, *, exact_timers: bool = False
) -> float:
    """Seconds for 100,000,000 decrements, extrapolated from fewer, in processes of `setting`."""
    words = [str(threads), str(decrements), str(setting.switch_interval_s)]
    words += ["exact"] if exact_timers else []
    with program(setting, "countdown_threads", *words) as counting:
        counting.answer()
        counting.measure(Window.after(0.0, limit_s))
        counted = counting.answer()
    seconds, decrements_done = counted["seconds"], counted["decrements"]
    return float(seconds / decrements_done * UNIT_DECREMENTS)


def _with_a_gil(results: Results) -> list[tuple[str, Results]]:
    """The rows of each policy and kind of timers, with a name."""
    with_a_gil = results.where(mode="threads")
    found = [
        (f"{policy}{', exact timers' if timers == 'exact' else ''}", policy, timers)
        for policy in with_a_gil.distinct("policy")
        for timers in with_a_gil.where(policy=policy).distinct("timers")
    ]
    return [
        (title, with_a_gil.where(policy=policy, timers=timers)) for title, policy, timers in found
    ]


def _note(results: Results) -> str:
    """A note about the rows of a policy and kind of timers."""
    if results.distinct("timers") == ["exact"]:
        return EXACT
    stock = results.where(policy=STOCK, switch_interval=DEFAULT_SWITCH_INTERVAL_S)
    return f"{BEST}." if stock.rows else ""


def _measured_free_threaded(results: Results) -> Results:
    found = results.where(mode="free-threaded")
    found.rows = [row for row in found if row.values]
    return found


def _interval_text(interval_s: object) -> str:
    return text_of("switch_interval", interval_s)


def _no_gain(results: Results) -> list[Statement]:
    """Threads bring no gain at the default switch interval, and small intervals cost one thread
    nothing."""
    default_s = DEFAULT_SWITCH_INTERVAL_S
    one = _parameters(STOCK, default_s, 1)
    found = [
        Statement(
            f"at 5 ms, {threads} threads take as long as one: ratio of the times",
            results.ratio(_parameters(STOCK, default_s, threads), one),
            0.85,
            1.2,
        )
        for threads in several(results)
    ]
    smallest_s = min(results.distinct("switch_interval"), default=default_s)
    if smallest_s < default_s:
        at = _interval_text(smallest_s)
        text = f"one thread takes as long at {at} as at 5 ms: ratio of the times"
        ratio = results.ratio(_parameters(STOCK, smallest_s, 1), one)
        found.append(Statement(text, ratio, 0.85, 1.15))
    return found


def _growth(results: Results) -> list[Statement]:
    """Small intervals cost several threads time, and each smaller interval costs more."""
    found = []
    most = max(several(results), default=1)
    small_s = [each for each in results.distinct("switch_interval") if each <= SMALL_INTERVAL_S]
    for timers, why in (("default", SLACK), ("exact", "")) if most > 1 else ():
        costs = {}
        for interval_s in sorted(small_s, reverse=True):
            cost = results.ratio(
                _parameters(STOCK, interval_s, most, timers),
                _parameters(STOCK, interval_s, 1, timers),
            )
            if not math.isnan(cost):
                costs[_interval_text(interval_s)] = cost
        if not costs:
            continue
        smallest, cost = list(costs.items())[-1]
        text = f"{timers} timers, at {smallest}: the time of {most} threads over that of one"
        found.append(Statement(text, cost, low=1.3, why=why))
        if len(costs) > 1:
            steps = [after / before for before, after in pairwise(costs.values())]
            text = f"{timers} timers: it rises at each step of {', '.join(costs)}, by at least"
            found.append(Statement(text, min(steps), low=1.15, why=why))
    return found


def _policies(results: Results) -> list[Statement]:
    """Threads bring no gain under policies either; and the effect of policies on the cost of small
    intervals."""
    found = []
    most = max(several(results), default=1)
    smallest_s = min(results.distinct("switch_interval"), default=math.inf)
    for policy in results.distinct("policy"):
        if policy == STOCK or most == 1:
            continue
        default_s = DEFAULT_SWITCH_INTERVAL_S
        text = f"{policy}, at 5 ms: {most} threads take as long as one: ratio of the times"
        ratio = results.ratio(
            _parameters(policy, default_s, most), _parameters(policy, default_s, 1)
        )
        found.append(Statement(text, ratio, 0.85, 1.2))
        for timers in ("default", "exact") if smallest_s <= SMALL_INTERVAL_S else ():
            text = (
                f"{policy}, {timers} timers, at {_interval_text(smallest_s)}: {most} threads take "
                "no longer than under stock: ratio of the times"
            )
            ratio = results.ratio(
                _parameters(policy, smallest_s, most, timers),
                _parameters(STOCK, smallest_s, most, timers),
            )
            found.append(Statement(text, ratio, high=1.1))
    return found
