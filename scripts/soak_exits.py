"""Ends random programs under Headway by the thousand, beside plain CPython.

    .venvs/3.13/bin/python scripts/soak_exits.py --minutes 20
    .venvs/3.13/bin/python scripts/soak_exits.py --exits 10000 --results exits.jsonl \\
        --python .venvs/3.10 --python .venvs/3.14 --python .venvs/3.13t

A program is made from a seed out of parts: daemon threads, forks, sub-interpreters, signals, C
threads, handlers of atexit, and one of many ways to end (scripts/soak_exits_programs.py). `--show
SEED` prints it. Each exit runs a program twice: in a condition, which is what Headway does in the
process, and without Headway. Its outcome is the exit status or signal, what it printed, the errors
on stderr, and whether it or a child of it hung.

Some of these programs crash or hang on CPython alone, now and then, so one difference proves
nothing: a program whose outcome differs runs again and again in both ways, until chance explains
the difference or cannot; also without Headway and with an end that takes as long as Headway's
report. That makes a fault:

- an outcome that comes more often under Headway than without it (Fisher's exact test), or, for
  all exits together, a status that does so by version, by condition or by part;
- an outcome that came again under Headway and never without it.

Each fault is printed with the command that runs its program again. A difference that did not come
again is counted as `once`.

Exit status: 0 if there is no fault; 1 if there is one; 2 for bad usage; 130 after Ctrl-C, with the
table so far.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import comb
from pathlib import Path
from typing import NoReturn

from soak_exits_programs import NAMES, draw, source
from soak_exits_runs import PLAIN, SLOW, Outcome, Runs, Task, check_condition, version

CONDITIONS = (
    "interval",
    "priority",
    "deadline",
    "priority+report",
    "priority+report+follow",
    "interval+telemetry",
    "deadline+telemetry",
    "interval+profile",
    "priority+trace+report",
    "priority+profile+trace+telemetry+follow+report",
)
PROGRESS_S = 15.0
# A program is rerun at most so often with and without Headway, and until the chance that both rates
# are the same is below SURE, or above DOUBTFUL where both have the outcome.
RERUNS = 100
SURE, DOUBTFUL = 0.001, 0.05
PLAIN_FOR_A_HANG = 10
# A program that fails in this share of so many plain runs has no end to compare with.
ENOUGH_PLAIN, HARDLY_EVER = 10, 0.9
# When --minutes are over, reruns may go on for such a share of them.
RERUNS_SHARE = 0.2
EVIDENCE_LINES = 20
# The chance that any of the comparisons of rates finds a fault where there is none.
FALSE_ALARM = 0.01


@dataclass
class Trial:
    """One exit under Headway and the plain ones beside it."""

    seed: int
    python: str
    condition: str
    measured: str = ""
    plain: str = ""
    # Why there were reruns, and what they showed.
    verdict: str = ""
    again: Counter[str] = field(default_factory=Counter)
    plain_again: Counter[str] = field(default_factory=Counter)
    slow_again: Counter[str] = field(default_factory=Counter)
    evidence: str = ""

    def key(self) -> tuple[int, str, str]:
        return self.seed, self.python, self.condition

    def runs(self) -> int:
        return 2 + sum(each.total() for each in (self.again, self.plain_again, self.slow_again))

    def is_plain(self) -> bool:
        """Whether the outcome has come again without Headway."""
        return bool(self.plain_again[self.measured] or self.slow_again[self.measured])

    def has_no_end(self) -> bool:
        """Whether CPython alone hardly ever ends the program well. Then nobody knows how it should
        end."""
        bad = sum(count for outcome, count in self.plain_again.items() if is_bad(outcome))
        runs = self.plain_again.total()
        return runs >= ENOUGH_PLAIN and bad >= HARDLY_EVER * runs

    def chance(self) -> float:
        """That the outcome comes as often without Headway. Of the reruns alone: what made them
        necessary proves nothing."""
        return max(
            fisher(*hits_and_runs(self.again, self.measured), *hits_and_runs(plain, self.measured))
            for plain in (self.plain_again, self.slow_again)
        )


def is_bad(outcome: str) -> bool:
    """Whether a program crashed or did not end."""
    return status_of(outcome) == "crash" or hangs(outcome)


def hits_and_runs(runs: Counter[str], outcome: str) -> tuple[int, int]:
    """How often runs had an outcome, of how many. A crash of CPython does not tell how a program
    should end, so it counts only among crashes."""
    counted = [count for each, count in runs.items() if is_bad(outcome) or not is_bad(each)]
    return runs[outcome], sum(counted)


def fisher(more: int, of: int, less: int, of_less: int) -> float:
    """The chance that `more` of `of` or more are among the hits, if both rates are the same."""
    hits, runs = more + less, of + of_less
    ways = sum(
        comb(of, count) * comb(of_less, hits - count) for count in range(more, min(hits, of) + 1)
    )
    return ways / comb(runs, hits)


def examine(
    trial: Trial, reruns: int, end_s: float = float("inf")
) -> Generator[str, Outcome, None]:
    """Yields the conditions to run the program in, and is sent the outcomes. There are at most so
    many reruns each way, and none after `end_s`."""
    measured = yield trial.condition
    plain = yield PLAIN
    trial.measured, trial.plain = str(measured), str(plain)
    if trial.measured == trial.plain or (is_bad(trial.plain) and not is_bad(trial.measured)):
        return
    trial.evidence = "\n".join(measured.evidence.splitlines()[-EVIDENCE_LINES:])
    for _ in range(reruns):
        # A program that hangs takes a hundred times as long.
        for _ in range(PLAIN_FOR_A_HANG if hangs(trial.measured) else 1):
            trial.plain_again[str((yield PLAIN))] += 1
            trial.slow_again[str((yield SLOW))] += 1
            if trial.has_no_end() or (trial.is_plain() and trial.chance() > DOUBTFUL):
                return
        trial.again[str((yield trial.condition))] += 1
        if trial.chance() < SURE or time.monotonic() > end_s:
            break
    if trial.chance() < DOUBTFUL or (trial.again[trial.measured] and not trial.is_plain()):
        trial.verdict = "fault"
    elif not trial.is_plain():
        trial.verdict = "once"


def status_of(outcome: str) -> str:
    return outcome.partition(";")[0]


@dataclass
class Rate:
    """How often exits of a group had a status, under Headway and without it."""

    group: str
    status: str
    measured: int
    exits: int
    plain: int
    plain_exits: int

    def chance(self) -> float:
        return fisher(self.measured, self.exits, self.plain, self.plain_exits)


def rates(trials: Iterable[Trial]) -> list[Rate]:
    """Those that are higher under Headway than chance explains, whatever the number of groups."""
    measured: dict[str, Counter[str]] = {}
    plain: dict[str, Counter[str]] = {}
    for trial in trials:
        parts = {part.__name__ for part in draw(trial.seed)}
        for group in (trial.python, trial.condition, f"{trial.python} {trial.condition}", *parts):
            measured.setdefault(group, Counter())[status_of(trial.measured)] += 1
            plain.setdefault(group, Counter())[status_of(trial.plain)] += 1
    found = [
        Rate(group, status, *hits_and_runs(counts, status), *hits_and_runs(plain[group], status))
        for group, counts in measured.items()
        for status in counts
    ]
    return [rate for rate in found if rate.chance() * len(found) < FALSE_ALARM]


class Soak:
    def __init__(self, options: argparse.Namespace, pythons: dict[str, Path]) -> None:
        self.options = options
        self.pythons = pythons
        self.trials = read_results(options.results)
        self.begun_s = self.told_s = time.monotonic()

    def run(self, runs: Runs) -> None:
        conditions = self.options.conditions or CONDITIONS
        cells = []
        for python, condition in itertools.product(self.pythons, conditions):
            if why := runs.refusal(self.pythons[python], condition):
                tell(f"{python} without {condition}: {why}")
            else:
                cells.append((python, condition))
        if not cells:
            raise ValueError("no condition is left to run programs in")
        random.Random(0).shuffle(cells)
        todo = to_do(self.options, cells, {trial.key() for trial in self.trials})
        while True:
            while len(runs) < self.options.jobs and (trial := next(todo, None)):
                self._begin(runs, trial)
            if not len(runs):
                return
            runs.wait()
            self._tell_progress()

    def _begin(self, runs: Runs, trial: Trial) -> None:
        end_s = self.begun_s + self.options.minutes * 60 * (1 + RERUNS_SHARE)
        examination = examine(trial, self.options.reruns, end_s)
        python, text = self.pythons[trial.python], source(trial.seed)

        def start(condition: str) -> None:
            runs.start(Task(python, condition, text), go_on)

        def go_on(outcome: Outcome) -> None:
            try:
                condition = examination.send(outcome)
            except StopIteration:
                self._finish(trial)
            else:
                start(condition)

        start(next(examination))

    def _finish(self, trial: Trial) -> None:
        self.trials.append(trial)
        if self.options.results:
            with open(self.options.results, "a", encoding="utf-8") as results:
                results.write(json.dumps(vars(trial)) + "\n")
        if trial.verdict == "fault":
            print("\n" + self.described(trial), file=sys.stderr, flush=True)

    def described(self, trial: Trial) -> str:
        """A difference, with the command that runs its program again."""
        again, plain, slow = (
            f"{runs[trial.measured]} of {runs.total()}"
            for runs in (trial.again, trial.plain_again, trial.slow_again)
        )
        word = self.pythons[trial.python].parent.parent
        return (
            f"{trial.verdict}: {trial.python}, {trial.condition}: {trial.measured}\n"
            f"  plain: {trial.plain}; again: {again}, plain: {plain}, ending slowly: {slow}\n"
            f"  parts: {', '.join(part.__name__ for part in draw(trial.seed))}\n"
            f"  scripts/soak_exits.py --seed {trial.seed} --python {word} --with {trial.condition}"
            + "".join(f"\n  | {line}" for line in trial.evidence.splitlines())
        )

    def _tell_progress(self) -> None:
        now_s = time.monotonic()
        if now_s < self.told_s + PROGRESS_S:
            return
        self.told_s = now_s
        faults = sum(trial.verdict == "fault" for trial in self.trials)
        tell(
            f"{now_s - self.begun_s:.0f} s, {len(self.trials):,} exits, "
            f"{sum(trial.runs() for trial in self.trials):,} runs, {faults} faults"
        )


def table(trials: list[Trial]) -> Iterator[str]:
    names = ["exits", "runs", "differ", "faults", "once", "hangs", "plain"]
    yield _line("Python", "condition", names)
    cells: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        cells.setdefault((trial.python, trial.condition), []).append(trial)
    for python, condition in sorted(cells, key=lambda cell: (_numbers(cell[0]), cell[1])):
        yield _row(python, condition, cells[python, condition])
    yield _row("all", "", trials)


def _row(python: str, condition: str, trials: list[Trial]) -> str:
    counts = (
        len(trials),
        sum(trial.runs() for trial in trials),
        sum(trial.measured != trial.plain for trial in trials),
        sum(trial.verdict == "fault" for trial in trials),
        sum(trial.verdict == "once" for trial in trials),
        sum(hangs(trial.measured) for trial in trials),
        sum(hangs(trial.plain) for trial in trials),
    )
    return _line(python, condition, [f"{count:,}" for count in counts])


def _line(python: str, condition: str, figures: Iterable[str]) -> str:
    return f"{python:7} {condition:46} " + " ".join(f"{figure:>6}" for figure in figures)


def hangs(outcome: str) -> bool:
    return "hangs" in status_of(outcome) or "leaves" in status_of(outcome)


def _numbers(python: str) -> list[int]:
    return [int(word) for word in python.rstrip("t").split(".") if word.isdigit()]


def to_do(
    options: argparse.Namespace, cells: list[tuple[str, str]], done: set[tuple[int, str, str]]
) -> Iterator[Trial]:
    """Exits with another program and another version and condition each time, until there were
    enough."""
    end_s = time.monotonic() + options.minutes * 60
    repeated = options.seed is not None
    seeds = itertools.repeat(options.seed) if repeated else itertools.count(options.first_seed)
    count = 0
    for number, seed in enumerate(seeds):
        python, condition = cells[number % len(cells)]
        trial = Trial(seed, python, condition)
        names = {part.__name__ for part in draw(seed)}
        if not repeated:
            if trial.key() in done or names & {*options.without}:
                continue
            if options.part and not names & {*options.part}:
                continue
        if count >= options.exits or time.monotonic() > end_s:
            return
        count += 1
        yield trial


def read_results(file: Path | None) -> list[Trial]:
    """Of former runs. Raises ValueError."""
    if file is None or not file.exists():
        return []
    trials = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            trial = Trial(**json.loads(line))
        except (ValueError, TypeError):
            raise ValueError(f"{file}: found no result in line {number}") from None
        for name in ("again", "plain_again", "slow_again"):
            setattr(trial, name, Counter(getattr(trial, name)))
        trials.append(trial)
    return trials


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        tell(f"{message} (see --help)")
        raise SystemExit(2)


def at_least(kind: Callable[[str], float], least: float, text: str) -> float:
    try:
        found = kind(text)
    except ValueError:
        found = least - 1
    if not least <= found <= 1e9:
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed: a number from {least:g} on")
    return found


def condition(text: str) -> str:
    try:
        return check_condition(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def interpreter(text: str) -> Path:
    """Of a virtual environment or of its own path, whose name may be a link that matters."""
    path = Path(text).absolute()
    return path / "bin" / "python" if path.is_dir() else path


def parse() -> argparse.Namespace:
    whole = partial(at_least, int)
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="soak_exits.py",
    )
    add = parser.add_argument
    add("--minutes", type=partial(at_least, float, 0.01), metavar="M", help="(default: no limit)")
    add("--exits", type=partial(whole, 1), metavar="N", help="(default: 200, without --minutes)")
    add(
        "--python",
        type=interpreter,
        action="append",
        metavar="PATH",
        help="an interpreter with Headway, or its virtual environment (default: this one); may be "
        "repeated, as each of the following",
    )
    add(
        "--with",
        type=condition,
        action="append",
        dest="conditions",
        metavar="WORDS",
        help="a condition: words of interval, priority, deadline, report, follow, telemetry, "
        "profile and trace, joined by +; or plain, which compares CPython with itself "
        f"(default: {', '.join(CONDITIONS)})",
    )
    add(
        "--part",
        choices=NAMES,
        action="append",
        metavar="PART",
        help="only programs with this part",
    )
    add(
        "--without", choices=NAMES, action="append", default=[], metavar="PART", help="none with it"
    )
    add("--first-seed", type=whole_from_zero, metavar="SEED", help="(default: by chance)")
    add("--seed", type=whole_from_zero, help="only this program, again and again")
    add("--show", type=whole_from_zero, metavar="SEED", help="print this program")
    add("--jobs", type=partial(whole, 1), default=2 * (os.cpu_count() or 1), metavar="N")
    add(
        "--limit",
        type=partial(at_least, float, 1),
        default=20.0,
        metavar="S",
        help="(default: 20) a program that takes longer hangs",
    )
    add("--reruns", type=partial(whole, 0), default=RERUNS, metavar="N", help="at most; see above")
    add(
        "--results",
        type=Path,
        metavar="FILE",
        help="one line of JSON for each exit; a later run with the same FILE goes on from there",
    )
    options = parser.parse_args()
    if options.part and {*options.part} <= {*options.without}:
        parser.error("--part and --without leave no program")
    if options.exits is None:
        options.exits = float("inf") if options.minutes else 200
    options.minutes = options.minutes or float("inf")
    return options


def whole_from_zero(text: str) -> int:
    return int(at_least(int, 0, text))


def main() -> int:
    options = parse()
    if options.show is not None:
        print(source(options.show), end="")
        return 0
    # A shell's background job ignores SIGINT, and programs would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        pythons = {version(path): path for path in options.python or [Path(sys.executable)]}
        soak = Soak(options, pythons)
        if options.first_seed is None:
            seeds = [trial.seed for trial in soak.trials]
            options.first_seed = min(seeds, default=random.SystemRandom().randrange(1_000_000))
        tell(f"--first-seed {options.first_seed}")
        with (
            tempfile.TemporaryDirectory(prefix="headway-soak-") as folder,
            Runs(Path(folder), options.limit) as runs,
        ):
            soak.run(runs)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    except ValueError as error:
        tell(str(error))
        return 2
    return judge(soak, interrupted)


def tell(text: str) -> None:
    print(f"soak_exits: {text}", file=sys.stderr, flush=True)


def judge(soak: Soak, interrupted: bool) -> int:
    """Prints the table and all differences."""
    print(*table(soak.trials), sep="\n")
    higher = rates(soak.trials)
    for rate in higher:
        print(
            f"fault: {rate.group}: {rate.status} in {rate.measured} of {rate.exits} exits, "
            f"plain in {rate.plain} of {rate.plain_exits} (p = {rate.chance():.2g})"
        )
    for trial in soak.trials:
        if trial.verdict and trial.python in soak.pythons:
            print(soak.described(trial))
    if interrupted:
        tell("interrupted")
        return 130
    return int(bool(higher) or any(trial.verdict == "fault" for trial in soak.trials))


if __name__ == "__main__":
    sys.exit(main())
