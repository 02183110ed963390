"""Measures what Headway adds to `os.fork()` in the parent, alone and beside three computing
threads: under a policy, with telemetry, and with a profile.

Each setting runs once in every round, in a fresh process. Nobody receives the reports. The median
and the longest are those of all forks of a setting; a ratio is to the same policy alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from figures import number, table
from places import PROGRAMS

FORKS, QUICK_FORKS = 100, 10
ROUNDS, QUICK_ROUNDS = 5, 1
COMPUTING_THREADS = (0, 3)
HEADINGS = ("setting", "threads", "median ms", "/policy", "longest ms", "/policy")


class Setting(NamedTuple):
    name: str
    # The setting that a ratio is to.
    policy: str
    # The value of HEADWAY, with the place of a socket.
    variable: str = ""
    # Options of `headway run`.
    run: tuple[str, ...] = ()


SETTINGS = (
    Setting("plain", "plain"),
    Setting("priority", "priority", "priority"),
    Setting("priority, telemetry", "priority", "priority,telemetry=unix:{socket}"),
    Setting("interval", "interval", "interval"),
    Setting("interval, telemetry", "interval", "interval,telemetry=unix:{socket}"),
    Setting(
        "interval, profile",
        "interval",
        run=("--policy", "interval", "--profile", "{folder}/profile.txt"),
    ),
)


def fork_times(setting: Setting, threads: int, forks: int, folder: Path) -> list[float]:
    """The seconds of each fork in one process."""
    places = {"socket": folder / "reports.sock", "folder": folder}
    command = [sys.executable]
    if setting.run:
        command += ["-m", "headway", "run", *(word.format(**places) for word in setting.run)]
    command += [str(PROGRAMS / "forking.py"), str(forks), str(threads)]
    kept = {key: text for key, text in os.environ.items() if not key.startswith("HEADWAY")}
    # CPython warns of a fork beside the computing threads.
    environment = {**kept, "PYTHONWARNINGS": "ignore"}
    if setting.variable:
        environment["HEADWAY"] = setting.variable.format(**places)
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--forks", type=int, default=FORKS, help="in each process")
    parser.add_argument("--quick", action="store_true", help="few of both, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.forks = QUICK_ROUNDS, QUICK_FORKS
    found: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        for _ in range(options.rounds):
            for threads in COMPUTING_THREADS:
                for setting in SETTINGS:
                    times = fork_times(setting, threads, options.forks, Path(folder))
                    found.setdefault((setting.name, threads), []).extend(times)
    lines = []
    for threads in COMPUTING_THREADS:
        for setting in SETTINGS:
            line = [setting.name, str(threads)]
            for of in (statistics.median, max):
                mine, policy = (of(found[each, threads]) for each in (setting.name, setting.policy))
                line += [number(mine * 1e3), f"{mine / policy:.2f}"]
            lines.append(line)
    print(table(HEADINGS, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
