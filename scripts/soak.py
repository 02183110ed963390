"""Runs everything that meets the GIL at once, for long, while policies change.

    .venvs/3.13/bin/python scripts/soak.py [--minutes 20] [--policy P] [--no-policy-changes]
        [--profile]

Threads that compute, sleep, spin, echo, pass items through queues and end; forks with threads in
the child; sub-interpreters; garbage collection; signals; subprocesses. What happens when is drawn
from --seed; how the threads interleave is not. Every worker must get on, and the counters must
balance, while it runs and at its end. With --profile there is a contention profile, which ends and
begins anew now and then, and whose sums must agree. --plain leaves Headway out: what fails then is
CPython's.

Exit status: 0 if all is well; 1 if a thread got stuck (all stacks are shown), a worker failed or
counters do not balance; 2 for bad usage.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from typing import NoReturn

from soak_counters import SoakFailure, check_counters, check_profile
from soak_workers import WORKERS

from headway import gil

# No worker does as little as nothing for so long, even behind all the others under `interval`.
STUCK_S = 90
# A process that was stopped meanwhile sees its clock jump: so many turns must have passed, too.
STUCK_TURNS = 100
PROGRESS_S = 10
LONGEST_TURN_S = 0.1
# At a turn, that the profile ends and another one begins.
RESTART_CHANCE = 0.05
SWITCH_INTERVALS_S = (0.005, 0.005, 0.001, 0.0001, 0.02)


class Soak:
    """Workers in threads of their own, directed from the main thread."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.plain: bool = options.plain
        self.profiling = gil.profile() if options.profile else None
        self.chance = random.Random(options.seed)
        self.policies = [*gil.policies()] if options.policy_changes else [options.policy]
        self.policy: str = options.policy
        self.stopping = False
        self.problem: str | None = None
        happenings = ["policy changes", "reinstalls", "snapshots", "signals"]
        if options.profile:
            happenings.append("profiles")
        self.happened = dict.fromkeys(happenings, 0)
        names = [worker.__name__ for worker in WORKERS]
        self.counts = [0] * len(WORKERS)
        self.threads = [
            threading.Thread(
                target=self.work,
                args=(index, random.Random(self.chance.random())),
                name=f"{name}-{names[:index].count(name)}",
            )
            for index, name in enumerate(names)
        ]

    def work(self, index: int, chance: random.Random) -> None:
        try:
            work = WORKERS[index](chance)
            for _ in work:
                self.counts[index] += 1
                if self.stopping:
                    break
            # Closed here, not wherever the garbage collector finds it.
            work.close()  # type: ignore[attr-defined]
        except Exception as problem:
            if not isinstance(problem, SoakFailure):
                traceback.print_exc()
            self.problem = self.problem or f"{type(problem).__name__}: {problem}"

    def run(self, minutes: float) -> None:
        """Raises SoakFailure. A thread that is stuck ends the process."""
        signal.signal(signal.SIGUSR1, self.note_signal)
        if not self.plain:
            gil.install(self.policy)
        if self.profiling is not None:
            self.profiling.start()
        for thread in self.threads:
            thread.start()
        try:
            self.direct(time.monotonic() + minutes * 60)
        finally:
            self.stopping = True
            for thread in self.threads:
                thread.join()
        if self.problem is not None:
            raise SoakFailure(self.problem)
        if not self.plain:
            self.check()
            gil.uninstall()
            self.check()
        if self.profiling is not None:
            check_profile(self.profiling.stop())

    def direct(self, end_s: float) -> None:
        seen = [-1] * len(WORKERS)
        moved_s = [time.monotonic()] * len(WORKERS)
        moved_turn = [0] * len(WORKERS)
        turn, began_s, told_s = 0, time.monotonic(), 0.0
        while (now_s := time.monotonic()) < end_s and self.problem is None:
            # Its thread needs no GIL: it also ends a process in which nobody gets it.
            faulthandler.dump_traceback_later(2 * STUCK_S, exit=True)
            turn += 1
            for index, count in enumerate(self.counts):
                if count != seen[index]:
                    seen[index], moved_s[index], moved_turn[index] = count, now_s, turn
                elif now_s > moved_s[index] + STUCK_S and turn > moved_turn[index] + STUCK_TURNS:
                    end_stuck(self.threads[index].name)
            if now_s >= told_s + PROGRESS_S:
                told_s = now_s
                self.tell_progress(now_s - began_s, end_s - now_s)
            self.act()
            time.sleep(self.chance.random() * LONGEST_TURN_S)

    def act(self) -> None:
        action = self.chance.choices(
            (self.change_policy, self.change_interval, self.reinstall, self.check, self.signal),
            weights=(10, 2, 1, 2, 10),
        )[0]
        if not self.plain or action in (self.change_interval, self.signal):
            action()
        if self.profiling is not None and self.chance.random() < RESTART_CHANCE:
            self.restart_profile(self.profiling)

    def change_policy(self) -> None:
        self.policy = self.chance.choice(self.policies)
        gil.install(self.policy)
        self.happened["policy changes"] += 1

    def change_interval(self) -> None:
        sys.setswitchinterval(self.chance.choice(SWITCH_INTERVALS_S))

    def reinstall(self) -> None:
        """The counters close, and others open."""
        gil.uninstall()
        self.check()
        gil.install(self.policy)
        self.happened["reinstalls"] += 1

    def restart_profile(self, profiling: gil.Profiling) -> None:
        check_profile(profiling.stop())
        profiling.start()
        self.happened["profiles"] += 1

    def check(self) -> None:
        check_counters(gil.snapshot().report())
        self.happened["snapshots"] += 1
        if self.profiling is not None:
            check_profile(self.profiling.take())

    def signal(self) -> None:
        """Python runs the handler in the main thread, whichever thread the signal interrupts."""
        thread = self.chance.choice([threading.main_thread(), *self.threads])
        if thread.is_alive() and thread.ident is not None:
            signal.pthread_kill(thread.ident, signal.SIGUSR1)

    def note_signal(self, *_: object) -> None:
        self.happened["signals"] += 1

    def tell_progress(self, elapsed_s: float, left_s: float) -> None:
        least = min(range(len(WORKERS)), key=self.counts.__getitem__)
        print(
            f"soak: {elapsed_s:.0f} s, {left_s:.0f} s left; {self.policy}; "
            f"{sum(self.counts):,} pieces of work, fewest {self.counts[least]:,} by "
            f"{self.threads[least].name}",
            file=sys.stderr,
            flush=True,
        )

    def __str__(self) -> str:
        """The pieces of work that were done, in one line."""
        done: dict[str, int] = {}
        for worker, count in zip(WORKERS, self.counts, strict=True):
            done[worker.__name__] = done.get(worker.__name__, 0) + count
        return ", ".join(f"{name} {count:,}" for name, count in {**self.happened, **done}.items())


def end_stuck(name: str) -> NoReturn:
    """Without cleaning up: what is stuck would not end."""
    print(f"soak: {name} did nothing for {STUCK_S} s; all stacks:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback()
    os._exit(1)


def show_stacks_at_alarm() -> None:
    """SIGALRM kills, as it does by default, but not before all stacks were shown."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)


def positive_minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= 10_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; it is a number of minutes above 0")
    return minutes


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"soak: {message} (see --help)", file=sys.stderr)
        raise SystemExit(2)


def main() -> int:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="soak.py"
    )
    parser.add_argument("--minutes", type=positive_minutes, default=20.0, metavar="M")
    policies = [*gil.policies()]
    parser.add_argument("--policy", choices=policies, default="priority", help="to begin with")
    parser.add_argument("--policy-changes", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--profile", action="store_true", help="with a contention profile")
    parser.add_argument("--plain", action="store_true", help="without Headway")
    options = parser.parse_args()
    if options.profile and options.plain:
        parser.error("--profile and --plain exclude each other: a profile needs Headway")
    # Of forks in a process of several threads, which are the point here.
    warnings.simplefilter("ignore")
    faulthandler.enable()
    show_stacks_at_alarm()
    soak = Soak(options)
    print(f"soak: {sys.version.split()[0]}, --seed {options.seed}", file=sys.stderr, flush=True)
    try:
        soak.run(options.minutes)
    except SoakFailure as failure:
        print(f"soak: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        faulthandler.cancel_dump_traceback_later()
    print(f"soak: all is well: {soak}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
