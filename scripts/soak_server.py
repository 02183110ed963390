"""Has `headway serve` under a mixed load for long, while its processes are killed and replaced.

    .venvs/3.13/bin/python scripts/soak_server.py [--minutes 60] [--seed N] [--rate 60]

Two process groups, each of two processes with four threads, every limit that replaces processes
set, policy priority: one listens on TCP and a UNIX socket, the other one is preloaded and speaks
TLS, with a certificate that the command openssl makes. Clients that check every answer: kept
connections and new ones, pipelining, HEAD, HTTP/1.0, uploads of all kinds, streams, files, slow and
stalled readers and writers, half-closed and aborted connections, malformed requests, applications
that raise, answer garbage, compute, fork and never end. In the first part, the storm, workers also
get SIGKILL, call os._exit and run out of descriptors, and SIGHUP replaces them. In the second, the
calm, the same workers serve to the end. --seed says what each client does; how the clients
interleave is not in its power.

It fails if an answer is wrong, or missing where no process was killed; if a worker does not come
back, or ends of something that was not done to it; if memory grows (the median of the slopes
between samples: 64 KB/min for the supervisor, 256 for a worker of the calm, judged from two minutes
on; the C library is set to return large blocks that are freed) or descriptors do; if a client,
a connection or an iterable of the application is left.

Exit status: 0 if all is well; 1 if not; 2 for bad usage; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError

from soak import positive_minutes
from soak_configuration import GROUPS, Configuration
from soak_conversation import Address
from soak_crowd import Crowd, draw, total
from soak_growth import Watch
from soak_processes import Sample, sample
from soak_subject import SoakFailure, Subject

PROCESSES = 2
WORKERS = PROCESSES * len(GROUPS)
CLIENTS = 32
STORM = 0.6
PROGRESS_S = 10.0
TURN_S = 0.1
STARTED_S = 20.0
LOG_LINES_SHOWN = 30
# Signs of what no application does.
NEVER_SAID = ("panicked at", "Fatal Python error", "SystemError", "headway-worker thread ended")


class Soak:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.seconds: float = options.minutes * 60
        self.rate: float = options.rate
        self.chance = random.Random(options.seed)
        # Beyond what a busy machine makes of a page that is done soon.
        self.configuration = Configuration(folder, PROCESSES, request_timeout_s=4)
        self.subject = Subject(folder, self.configuration, WORKERS)
        self.seed: int = options.seed
        self.began_s = self.told_s = time.monotonic()
        self.done: dict[str, int] = {}

    def run(self) -> None:
        """Raises SoakFailure."""
        storm_s = self.seconds * STORM
        requests = int(self.rate * storm_s * 2 / WORKERS / 6)
        self.configuration.write(max(requests, 50), max(storm_s / 4, 5))
        try:
            self.subject.start()
            self.watch = Watch(
                self.subject.process.pid, self.subject.ports(), min(self.seconds / 100, 2.0)
            )
            self.crowd = Crowd(
                self.subject.addresses, self.subject.casualties, self.seed, CLIENTS, self.rate
            )
            supervisor = sample(self.subject.process.pid)
            self.watch.start()
            self.crowd.start()
            self.storm(time.monotonic() + storm_s)
            calm_pids = self.calm(time.monotonic() + self.seconds - storm_s)
            self.crowd.stop()
            self.watch.stop()
            self.look()
            self.judge_end(calm_pids)
            judge_count("the supervisor", sample(self.subject.process.pid), "at first", supervisor)
            self.subject.stop()
        finally:
            self.subject.destroy()

    # The two parts

    def storm(self, end_s: float) -> None:
        subject, seconds = self.subject, end_s - time.monotonic()
        strikes: dict[Callable[[], None], float] = {
            self.kill: min(max(seconds / 10, 3), 60),
            subject.hang_up: min(max(seconds / 6, 5), 120),
            self.exit: min(max(seconds / 6, 5), 90),
            self.hoard: seconds / 2.5,
        }
        if seconds > 120:
            strikes[self.stubborn] = max(seconds / 4, 60)
        now_s = time.monotonic()
        due_s = {strike: now_s + self.chance.random() * each for strike, each in strikes.items()}
        while (now_s := time.monotonic()) < end_s:
            for strike, each_s in strikes.items():
                if due_s[strike] <= now_s:
                    due_s[strike] = now_s + self.chance.uniform(0.5, 1.5) * each_s
                    name = strike.__name__.replace("_", " ")
                    self.done[name] = self.done.get(name, 0) + 1
                    strike()
            self.look()
            time.sleep(TURN_S)

    def calm(self, end_s: float) -> list[int]:
        """Returns the workers that serve through it."""
        self.configuration.write(maximum_requests=10**9, restart_interval_s=10**6)
        self.subject.hang_up()
        pids = self.subject.pids("serving")
        while time.monotonic() < end_s:
            self.look()
            time.sleep(TURN_S)
        return pids

    def kill(self) -> None:
        self.subject.kill(self.chance.choice(self.subject.pids("serving")))

    def exit(self) -> None:
        self.subject.exit(self.any_address())

    def hoard(self) -> None:
        self.subject.hoard(self.any_address(), self.chance.random())

    def stubborn(self) -> None:
        self.subject.stubborn(self.any_address())

    def any_address(self) -> Address:
        return self.chance.choice(self.subject.addresses)

    # Judging

    def look(self) -> None:
        """At what is known so far, between strikes."""
        if wrong := self.crowd.judge():
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise SoakFailure(wrong[0] + more)
        if stuck := self.crowd.stuck():
            raise SoakFailure(stuck[0])
        if self.watch.stuck is not None:
            raise SoakFailure(self.watch.stuck)
        now_s = time.monotonic()
        if now_s > self.told_s + PROGRESS_S:
            self.told_s = now_s
            self.subject.check_deaths()
            self.tell_progress(now_s - self.began_s)

    def judge_end(self, calm_pids: list[int]) -> None:
        subject = self.subject
        subject.wait_for_retired()
        serving = subject.pids("serving")
        deaths = subject.check_deaths()
        if sorted(serving) != sorted(calm_pids):
            overdue = deaths.get("request_timeout", 0)
            print(f"soak: workers changed in the calm ({overdue} overdue)", file=sys.stderr)
        subject.wait_for(
            "the server closes connections whose clients have gone",
            lambda: not any(map(subject.has_connections, serving)),
        )
        for address in 4 * PROCESSES * subject.addresses:
            if unclosed := subject.unclosed(address):
                raise SoakFailure(f"{unclosed} iterables were never closed")
        subject.wait_for(
            "the server closes connections whose clients have gone",
            lambda: not any(map(subject.has_connections, serving)),
        )
        worn = [
            (group, pid, sample(pid)) for group in GROUPS for pid in subject.pids(groups=[group])
        ]
        subject.hang_up()
        subject.wait_for_retired()
        fresh = {group: subject.pids(groups=[group])[0] for group in GROUPS}
        for group, pid, seen in worn:
            judge_beside_new(f"{group} worker {pid}", seen, partial(sample, fresh[group]))
        self.judge_growth([pid for pid in calm_pids if pid in serving])
        said = subject.said()
        for sign in NEVER_SAID:
            if sign in said:
                raise SoakFailure(f"the server said {sign!r}")

    def judge_growth(self, calm_pids: list[int]) -> None:
        growths = self.watch.growths(calm_pids)
        for each in growths:
            print(f"soak: {each}", file=sys.stderr)
        for each in growths:
            if each.is_judged and each.kb_per_min > each.bound_kb_per_min:
                raise SoakFailure(f"memory grows: {each}")

    # Telling

    def tell_progress(self, elapsed_s: float) -> None:
        counts = total(self.crowd.counts())
        supervisor = self.watch.usage([self.watch.pid])
        workers = self.watch.usage(self.subject.pids("serving"))
        print(
            f"soak: {elapsed_s:.0f} of {self.seconds:.0f} s; {counts['sent']:,} sent, "
            f"{counts['allowed to fail']:,} allowed to fail; supervisor {supervisor}; "
            f"workers {workers}",
            file=sys.stderr,
            flush=True,
        )

    def __str__(self) -> str:
        """The visits and actions so far."""
        connected = ", ".join(f"{kind} {n:,}" for kind, n in self.crowd.connected().items())
        done = ", ".join(f"{name} {count}" for name, count in self.done.items())
        return (
            f"{draw(self.crowd.counts())}\n  connections: {connected}\n  done: {done}; the slowest "
            f"return to {WORKERS} workers took {self.subject.slowest_return_s:.1f} s"
        )


def judge_count(who: str, now: Sample | None, when: str, then: Sample | None) -> None:
    if now is None or then is None:
        raise SoakFailure(f"{who} is not there any more")
    for what in ("descriptors", "threads"):
        has, had = getattr(now, what), getattr(then, what)
        if has > had:
            raise SoakFailure(f"{who} has {has} {what}, and {had} {when}")


def judge_beside_new(who: str, now: Sample | None, sample_new: Callable[[], Sample | None]) -> None:
    """A worker that serves starts its threads one after another."""
    end_s = time.monotonic() + STARTED_S
    while True:
        try:
            return judge_count(who, now, "when it is new", sample_new())
        except SoakFailure:
            if time.monotonic() > end_s:
                raise
        time.sleep(TURN_S)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        print(f"soak: {message} (see --help)", file=sys.stderr)
        raise SystemExit(2)


def positive_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 10_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; it is a number of visits a second")
    return rate


def main() -> int:
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="soak_server.py",
    )
    parser.add_argument("--minutes", type=positive_minutes, default=60.0, metavar="M")
    parser.add_argument(
        "--rate", type=positive_rate, default=60.0, help="visits a second (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    print(f"soak: {sys.version.split()[0]}, --seed {options.seed}", file=sys.stderr, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        soak = Soak(options, folder)
    except (OSError, CalledProcessError) as error:
        print(f"soak: cannot make a certificate: {error}", file=sys.stderr)
        shutil.rmtree(folder)
        return 1
    try:
        soak.run()
    except SoakFailure as failure:
        log = soak.subject.log
        if log.exists():
            print("\n".join(soak.subject.said().splitlines()[-LOG_LINES_SHOWN:]), file=sys.stderr)
            print(f"soak: that is the end of {log}", file=sys.stderr)
        print(f"soak: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("soak: interrupted", file=sys.stderr)
        shutil.rmtree(folder)
        return 130
    shutil.rmtree(folder)
    print(f"soak: all is well:\n{soak}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
