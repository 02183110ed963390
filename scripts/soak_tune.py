"""Has `headway tune` at work on a server under a mixed load for long, one experiment after another.

    .venvs/3.13/bin/python scripts/soak_tune.py [--minutes 60] [--seed N] [--rate 60]

The server, its clients and their judgement are those of scripts/soak_server.py, but no worker is
killed, so every request must have its right answer. Each experiment tunes one of the two process
groups, with settings, a goal and a duration that --seed says. It is left alone, or applies its
winner, is killed by SIGKILL, is interrupted, meets a second `headway tune`, or SIGHUP has the
server read its configuration again. After its end every worker must have the setting of before, or
the winner that was applied.

Exit status: 0 if all is well; 1 if not; 2 for bad usage; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from soak import positive_minutes
from soak_configuration import GROUPS, Configuration
from soak_conversation import Address, Conversation
from soak_crowd import Crowd, draw, total
from soak_server import CLIENTS, PROCESSES, WORKERS, Parser, positive_rate
from soak_subject import PATIENCE_S, SoakFailure, Subject

from headway import gil
from headway.tune.connection import Connection
from headway.tune.setting import Setting

POLICIES = tuple(gil.policies())
WORSE = Setting("interval", 0.02)
APPLYING = ("--apply", "--goal", "p99", "--margin", "1", "--switch-interval", "0.005")
APPLIED_S = 60.0
TIMING = ("--block", "1", "--washout", "0.25")
SWITCH_INTERVALS_S = (0.0005, 0.005, 0.02)
GOALS = ("p99", "p50", "throughput", "cpu", "p99, throughput >= 0.9")
# How an experiment ends, and how often beside the others.
ENDS = {"alone": 4, "applied": 3, "killed": 4, "interrupted": 2, "refused": 1, "hung up": 1}
# The exit status after a strike.
STRUCK_STATUS = {"killed": -signal.SIGKILL, "interrupted": 130, "hung up": 1}
# Of a group: each of its processes is met in so many connections but once in a million times.
ASKED = 20
TURN_S = 0.1


class Soak:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.seconds: float = options.minutes * 60
        self.seed: int = options.seed
        self.rate: float = options.rate
        self.chance = random.Random(options.seed)
        self.configuration = Configuration(folder, PROCESSES, request_timeout_s=4)
        self.subject = Subject(folder, self.configuration, WORKERS)
        self.settings = dict.fromkeys(GROUPS, Setting("priority", 0.005))
        self.done: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.slowest_return_s = 0.0

    def run(self) -> None:
        """Raises SoakFailure."""
        self.configuration.write(maximum_requests=10**9, restart_interval_s=10**6)
        try:
            self.subject.start()
            self.crowd = Crowd(
                self.subject.addresses, self.subject.casualties, self.seed, CLIENTS, self.rate
            )
            self.crowd.start()
            began_s = time.monotonic()
            while (elapsed_s := time.monotonic() - began_s) < self.seconds:
                self.experiment()
                self.tell_progress(elapsed_s)
            self.crowd.stop()
            self.look()
            self.subject.stop()
        finally:
            self.subject.destroy()

    def experiment(self) -> None:
        chance = self.chance
        group, end = chance.choice(GROUPS), chance.choices([*ENDS], [*ENDS.values()])[0]
        file = self.folder / "tuned.json"
        file.unlink(missing_ok=True)
        for_s = APPLIED_S if end == "applied" else chance.uniform(5, 30)
        if end == "applied":
            # There has to be a setting that is better.
            self.apply(group, WORSE)
        command = [*self.tune(group), "--for", f"{for_s:.1f}", "--json", str(file), *TIMING]
        command += APPLYING if end == "applied" else self.any_candidates()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tune:
            try:
                self.strike(tune, group, end, chance.uniform(0, for_s))
                err = tune.communicate(timeout=for_s + PATIENCE_S)[1]
            except subprocess.TimeoutExpired:
                raise SoakFailure(f"headway tune does not end: {' '.join(command)}") from None
            finally:
                tune.kill()
        # It may have ended before the strike.
        if tune.returncode not in (0, STRUCK_STATUS.get(end)):
            said = err.decode()[-300:]
            raise SoakFailure(f"headway tune ({end}) ended with {tune.returncode}: {said}")
        if tune.returncode == 0:
            self.note_result(group, json.loads(file.read_text()), is_applied=end == "applied")
        self.done[end] += 1
        self.check_settings()
        self.look()

    def any_candidates(self) -> list[str]:
        policies = self.chance.sample(POLICIES, self.chance.randint(1, len(POLICIES)))
        # All intervals: some candidate is then not the present setting.
        return [
            *("--goal", self.chance.choice(GOALS)),
            *(word for policy in policies for word in ("--policy", policy)),
            *(word for each in SWITCH_INTERVALS_S for word in ("--switch-interval", str(each))),
        ]

    def apply(self, group: str, setting: Setting) -> None:
        with closing(Connection(f"unix:{self.subject.status_path}", group)) as connection:
            connection.apply(setting)
        self.settings[group] = setting

    def tune(self, group: str) -> list[str]:
        address = f"unix:{self.subject.status_path}"
        return [sys.executable, "-m", "headway", "tune", address, "--group", group]

    def strike(self, tune: subprocess.Popen[bytes], group: str, end: str, after_s: float) -> None:
        """Does to an experiment what `end` says, so many seconds after its start."""
        if end in ("alone", "applied"):
            return
        until_s = time.monotonic() + after_s
        while time.monotonic() < until_s and tune.poll() is None:
            time.sleep(TURN_S)
        if end == "killed":
            tune.kill()
        elif end == "interrupted":
            # Python has its handler for SIGINT once the first block has begun.
            tune.send_signal(signal.SIGINT)
        elif end == "hung up":
            self.subject.hang_up()
        elif end == "refused":
            other = subprocess.run(
                self.tune(group), capture_output=True, text=True, timeout=PATIENCE_S
            )
            is_refused = "another headway tune (pid" in other.stderr
            if tune.poll() is None and (other.returncode != 1 or not is_refused):
                raise SoakFailure(f"two at once: {other.returncode}, {other.stderr[-300:]}")

    def note_result(self, group: str, document: dict[str, object], is_applied: bool) -> None:
        self.results[str(document["result"])] += 1
        winner = document["winner"]
        if is_applied and isinstance(winner, dict):
            self.done["winner applied"] += 1
            self.settings[group] = Setting(winner["policy"], winner["switch_interval_s"])

    def check_settings(self) -> None:
        """Each worker has the setting that it is to have, soon."""
        began_s = time.monotonic()
        plain, _, tls = self.subject.addresses
        for group, address in zip(GROUPS, (plain, tls), strict=True):
            wanted = self.settings[group]
            while (has := self.settings_of(address)) != {wanted}:
                if time.monotonic() > began_s + PATIENCE_S:
                    raise SoakFailure(f"{group} has {has}, and {wanted} before")
                time.sleep(TURN_S)
            self.slowest_return_s = max(self.slowest_return_s, time.monotonic() - began_s)

    def settings_of(self, address: Address) -> set[Setting]:
        found = set()
        for _ in range(ASKED):
            with Conversation(address) as conversation:
                conversation.send(b"GET /setting?token=s HTTP/1.0\r\nHost: soak\r\n\r\n")
                policy, interval = conversation.read_response().body.decode().split()
                found.add(Setting(policy, float(interval)))
        return found

    def look(self) -> None:
        for problems in (self.crowd.judge(), self.crowd.stuck()):
            if problems:
                raise SoakFailure(problems[0])
        self.subject.check_deaths()

    def tell_progress(self, elapsed_s: float) -> None:
        print(
            f"soak: {elapsed_s:.0f} of {self.seconds:.0f} s; "
            f"{total(self.crowd.counts())['sent']:,} sent; {self}",
            file=sys.stderr,
            flush=True,
        )

    def __str__(self) -> str:
        ends = ", ".join(f"{end} {count}" for end, count in self.done.items())
        results = ", ".join(f"{result} {count}" for result, count in self.results.items())
        return (
            f"experiments: {ends}; results: {results}; the slowest return to the setting took "
            f"{self.slowest_return_s:.1f} s"
        )


def main() -> int:
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="soak_tune.py",
    )
    parser.add_argument("--minutes", type=positive_minutes, default=60.0, metavar="M")
    parser.add_argument(
        "--rate", type=positive_rate, default=60.0, help="visits a second (default: 60)"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args()
    print(f"soak: {sys.version.split()[0]}, --seed {options.seed}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(options, Path(folder))
        try:
            soak.run()
        except SoakFailure as failure:
            print("\n".join(soak.subject.said().splitlines()[-30:]), file=sys.stderr)
            print(f"soak: {failure}\nsoak: {soak}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("soak: interrupted", file=sys.stderr)
            return 130
        print(f"soak: all is well:\n{draw(soak.crowd.counts())}\n  {soak}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
