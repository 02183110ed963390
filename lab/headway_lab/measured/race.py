"""`race`: updates that are lost when several threads add to one number.

If a thread loses the GIL between its load and its store, it then stores the old value plus its own
addition, and so undoes all additions of other threads in between. In a short run the GIL may not
change hands at all, which depends on the switch interval. In a long run it always does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from headway.errors import CommandError
from headway.options import DEFAULT_SWITCH_INTERVAL_S
from headway.output.claim import Statement
from headway.output.metadata import STOCK
from headway.output.results import Parameters, Results
from headway.output.table import Cell, Chart, Table, text_of
from headway.programs.processes import Window
from headway_lab.arrangement import pivot, series_by
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.setting import program

PLAIN = "x += 1"
CALL = "x += f()"
LOCKED = "with lock: x += 1"
# The forms in programs/race_threads.py.
FORMS = (PLAIN, "obj.x += 1", "d[k] += 1", "obj.property += 1", CALL, "x += int(s)", LOCKED)
THREADS = (4,)
INTERVALS_S = (0.005, 0.0001, 0.000001)
POLICY_INTERVALS_S = (0.005, 0.000001)
SMALL_INTERVAL_S = 0.000001
SMALL = text_of("switch_interval", SMALL_INTERVAL_S)
# The number of additions of each thread in a run: as published, and for many switch intervals.
SHORT, LONG = 1_000, 200_000
QUICK_CASES = (
    (CALL, DEFAULT_SWITCH_INTERVAL_S, SHORT),
    (CALL, SMALL_INTERVAL_S, SHORT),
    (CALL, DEFAULT_SWITCH_INTERVAL_S, LONG),
    (CALL, SMALL_INTERVAL_S, LONG),
    (PLAIN, SMALL_INTERVAL_S, SHORT),
    (PLAIN, SMALL_INTERVAL_S, LONG),
    (LOCKED, SMALL_INTERVAL_S, LONG),
)
QUICK_POLICY_CASES = ((PLAIN, SMALL_INTERVAL_S, LONG),)
QUICK_FREE_CASES = ((PLAIN, LONG), (LOCKED, LONG))
SECONDS = 0.3
QUICK_SECONDS = 0.2
MILLION = 1_000_000
ALONE = "one thread has nobody to race with"
WHERE_IT_LOOKS = (
    "CPython from 3.10 on looks whether to drop the GIL at calls and backward jumps only, 3.9 did "
    "before almost every bytecode; there this very loop loses updates"
)

Case = tuple[str, float, int]


class Race(Experiment):
    name = "race"
    unit = "lost of 1,000,000 additions"
    summary = "updates that += loses in several threads, by its form and switch interval"
    shows = (
        "Several threads add to one number without a lock, in runs of few and of many additions, "
        "and those that are missing in the sum are counted. Which forms of += lose some depends on "
        "where the interpreter lets other threads in, and a lock is the one form that is safe "
        "everywhere."
    )
    higher_is_better = False

    def rows(self, choice: Choice) -> list[Row]:
        if 0 in (choice.threads or THREADS):
            raise CommandError("--threads 0: race needs threads that add", exit_code=2)
        rows = [
            Row(
                _parameters(policy, interval_s, threads, form, additions),
                choice.setting(policy, interval_s),
                ALONE if threads == 1 else "",
            )
            for policy in choice.policies
            for form, interval_s, additions in _cases(choice, policy)
            for threads in choice.threads or THREADS
        ]
        no_free_threading = choice.no_free_threading
        setting = choice.setting() if no_free_threading else choice.free_threaded_setting()
        free = [(form, additions) for form in FORMS for additions in (SHORT, LONG)]
        return rows + [
            Row(
                _parameters(
                    STOCK, DEFAULT_SWITCH_INTERVAL_S, threads, form, additions, "free-threaded"
                ),
                setting,
                no_free_threading or (ALONE if threads == 1 else ""),
            )
            for form, additions in (QUICK_FREE_CASES if choice.quick else free)
            for threads in choice.threads or THREADS
        ]

    def calibrate(self, choice: Choice) -> Parameters:
        """Only records the interpreter, which decides whether updates are lost."""
        free = choice.free_threaded
        return {"python": choice.interpreter.name, "free_threaded": free.name if free else ""}

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        found = row.parameters
        words = (found["form"], found["threads"], found["additions"], found["switch_interval"])
        seconds = choice.seconds or (QUICK_SECONDS if choice.quick else SECONDS)
        with program(row.setting, "race_threads", *map(str, words)) as racing:
            racing.answer()
            racing.measure(Window.after(0.0, seconds))
            counted = racing.answer()
        return Measured(
            counted["lost"] / counted["additions"] * MILLION,
            {
                "runs_that_lost_share": counted["runs_that_lost"] / counted["runs"],
                "additions": counted["additions"],
            },
        )

    def published(self, parameters: Parameters) -> float | None:
        """The publication says that some updates are lost, and not how many."""
        return None

    def tables(self, results: Results) -> list[Table]:
        tables = [_verdicts(results)]
        with_a_gil = results.where(mode="threads")
        for policy in with_a_gil.distinct("policy"):
            for additions in with_a_gil.distinct("additions"):
                for threads in with_a_gil.distinct("threads"):
                    tables.append(
                        pivot(
                            with_a_gil.where(policy=policy, additions=additions, threads=threads),
                            f"{policy}: lost per million by {threads} threads, {additions:,} "
                            "additions each a run, by form and switch interval",
                            "form",
                            "switch_interval",
                            across_text=_interval_text,
                        )
                    )
        free = results.where(mode="free-threaded")
        for threads in free.distinct("threads"):
            found = free.where(threads=threads)
            if any(row.values for row in found):
                title = f"free-threaded: lost per million by {threads} threads, by form and length"
                tables.append(pivot(found, title, "form", "additions", across_text=_additions_text))
        return [table for table in tables if table.rows]

    def charts(self, results: Results) -> list[Chart]:
        charts = []
        stock = results.where(mode="threads", policy=STOCK)
        for additions in stock.distinct("additions"):
            for threads in stock.distinct("threads"):
                found = stock.where(additions=additions, threads=threads)
                lines = series_by(found, "form", "switch_interval")
                title = f"stock: lost updates by {threads} threads, {additions:,} additions a run"
                charts.append(Chart(title, "switch interval (s)", self.unit, lines, log_x=True))
        return charts

    def statements(self, results: Results) -> list[Statement]:
        found = [*_locked(results), *_by_form(results), *_by_length(results)]
        for policy in results.distinct("policy"):
            if policy != STOCK:
                safe = [form for form in FORMS if _most(results, form, STOCK) == 0]
                text = f"{policy}: what loses none under stock loses none: most lost per million"
                most = max((_most(results, form, policy) for form in safe), default=math.nan)
                found.append(Statement(text, most, high=0))
        return [each for each in found if not math.isnan(each.value)]


def _parameters(
    policy: str,
    interval_s: float,
    threads: int,
    form: str,
    additions: int,
    mode: str = "threads",
) -> Parameters:
    return {
        "policy": policy,
        "switch_interval": interval_s,
        "threads": threads,
        "mode": mode,
        "form": form,
        "additions": additions,
    }


def _cases(choice: Choice, policy: str) -> Iterator[Case]:
    if choice.quick and choice.switch_intervals_s is None:
        yield from QUICK_CASES if policy == STOCK else QUICK_POLICY_CASES
        return
    default = INTERVALS_S if policy == STOCK else POLICY_INTERVALS_S
    for additions in (SHORT, LONG):
        for form in FORMS:
            for interval_s in choice.switch_intervals_s or default:
                yield form, interval_s, additions


def _interval_text(interval_s: object) -> str:
    return text_of("switch_interval", interval_s)


def _additions_text(additions: object) -> str:
    return f"{additions:,} a run"


def _rows(results: Results, form: str, policy: str, mode: str, **more: object) -> Results:
    found = results.where(form=form, policy=policy, mode=mode, **more)
    found.rows = [row for row in found if row.values]
    return found


def _most(results: Results, form: str, policy: str, mode: str = "threads", **more: object) -> float:
    """The largest number of lost updates; NaN if the row was not measured."""
    found = _rows(results, form, policy, mode, **more)
    return max((value for row in found for value in row.values), default=math.nan)


def _verdicts(results: Results) -> Table:
    """A form is unsafe if it has ever lost an update here."""
    ways = [(policy, "threads") for policy in results.where(mode="threads").distinct("policy")]
    free = results.where(mode="free-threaded")
    if any(row.values for row in free):
        ways.append((STOCK, "free-threaded"))
    rows = []
    for form in results.distinct("form"):
        most = [_most(results, form, policy, mode) for policy, mode in ways]
        texts = ["-" if math.isnan(each) else "unsafe" if each else "safe" for each in most]
        rows.append([Cell(text=text) for text in (form, *texts)])
    python = results.calibration.get("python", "")
    beside = results.calibration.get("free_threaded", "")
    title = f"CPython {python}{f' and {beside}' if beside not in ('', python) else ''}"
    looked = sum(sum(row.figures.get("additions", [])) for row in results)
    return Table(
        f"{title}: forms that lost updates",
        ["form", *(mode if mode == "free-threaded" else policy for policy, mode in ways)],
        rows,
        note=f"safe: not one was lost, of {looked / MILLION:,.1f} million additions in all; what "
        "has no lock is so by this interpreter's ways alone, and not by Python's",
    )


def _locked(results: Results) -> list[Statement]:
    ways = [(policy, "threads") for policy in results.where(mode="threads").distinct("policy")]
    return [
        Statement(
            f"{policy if mode == 'threads' else mode}: with a lock none is lost: most lost per "
            "million",
            _most(results, LOCKED, policy, mode),
            high=0,
        )
        for policy, mode in [*ways, (STOCK, "free-threaded")]
    ]


def _by_form(results: Results) -> list[Statement]:
    with_a_gil = _most(results, PLAIN, STOCK)
    return [
        Statement(
            f"published: {PLAIN} loses updates at {SMALL}: most lost per million",
            _most(results, PLAIN, STOCK, switch_interval=SMALL_INTERVAL_S),
            low=1,
            why=WHERE_IT_LOOKS,
        ),
        Statement(
            f"a call between load and store, {CALL}, loses updates at {SMALL}: most "
            "lost per million",
            _most(results, CALL, STOCK, switch_interval=SMALL_INTERVAL_S),
            low=1,
        ),
        Statement(
            f"free-threaded, {PLAIN} loses more than with a GIL: so many more per million",
            _most(results, PLAIN, STOCK, "free-threaded") - with_a_gil,
            low=1,
        ),
    ]


def _by_length(results: Results) -> list[Statement]:
    """With a small interval, a short run loses updates that a long run loses with any interval."""

    def lost(additions: int, interval_s: float) -> float:
        found = _rows(results, CALL, STOCK, "threads", additions=additions)
        return max(
            (row.median() for row in found.where(switch_interval=interval_s)), default=math.nan
        )

    found = []
    for additions, low, high, text in (
        (SHORT, -math.inf, 0.2, "hardly any are lost at 5 ms"),
        (LONG, 0.4, 2.5, "as many are lost at 5 ms"),
    ):
        lost_at_small = lost(additions, SMALL_INTERVAL_S)
        ratio = lost(additions, DEFAULT_SWITCH_INTERVAL_S) / (lost_at_small or math.nan)
        text = f"{CALL} in runs of {additions:,} additions: {text}, of those at {SMALL}: share"
        found.append(Statement(text, ratio, low, high))
    return found
