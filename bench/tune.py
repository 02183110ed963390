"""Whether `headway tune serve` finds the setting that is known to be best.

Each round tunes six services, whose answers are known:

  mixed     light pages beside a few that compute for 150 ms: `priority`, or `deadline`, which
            treats such pages alike
  job       a page that drops the GIL eight times, beside a thread that computes: the same
  turns     the same, where `interval` is the only policy: 0.5 ms
  fixed     pages that all compute for 10 ms: no setting is better
  waiting   pages that wait for 5 ms without the GIL: no setting is better
  free      `mixed` on a free-threaded build: no setting is better

The present setting is `interval` at 5 ms. The candidates of the first two are `priority` and
`deadline`, that of the third is 0.5 ms, and those of the others are all policies at both intervals.
No winner is the right answer if no setting is better, whether the tool finds equivalence or no
result in its time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import sitting
from builds import FREE_THREADED_PYTHON, free_threaded_build
from figures import Figures, number, print_targets, table, target
from places import PROGRAMS

from headway.output.claim import Statement
from headway.programs.processes import ProgramError
from headway.tune.setting import SWITCH_INTERVALS_S, Setting

NAME = "tune"
BLOCK_S, WASHOUT_S = 2.0, 0.25
# The program's start and its end, and the targets that are tried before.
SPARE_S = 60.0
# Of the rounds of each service.
RIGHT_SHARE = 0.9
# The figure of the goal, p99.
FIGURE = "p99_s"
HEADINGS = (
    *("service", "known", "right", "winner", "equivalent", "undecided"),
    *("time s", "rounds", "ratio"),
)
LEGEND = """\
right: rounds with the known answer. time, rounds: until the end of the experiment, medians.
ratio: the winner's figure to that of the present setting, or that of the best candidate."""


PRESENT = Setting("interval", SWITCH_INTERVALS_S[0])
POLICY = (PRESENT._replace(policy="priority"), PRESENT._replace(policy="deadline"))
SHORT = (PRESENT._replace(switch_interval_s=SWITCH_INTERVALS_S[1]),)
POLICIES = ("interval", "priority", "deadline")


class Service(NamedTuple):
    """`load` and `path` are those of `headway tune serve`. `best` are the settings of which
    one is known to be best; none if none is better than the present one."""

    load: tuple[str, ...]
    rate: int
    path: str
    best: tuple[Setting, ...] = ()
    policies: tuple[str, ...] = POLICIES
    intervals_s: tuple[float, ...] = SWITCH_INTERVALS_S
    threads: int = 4
    has_job: bool = False
    is_free_threaded: bool = False


MIXED = Service(("/light 100", "/heavy 2"), 102, "/light")
SERVICES = {
    "mixed": MIXED._replace(best=POLICY, intervals_s=SWITCH_INTERVALS_S[:1]),
    "job": Service(
        ("/steps",), 100, "/steps", POLICY, POLICIES, SWITCH_INTERVALS_S[:1], has_job=True
    ),
    "turns": MIXED._replace(best=SHORT, policies=POLICIES[:1]),
    "fixed": Service(("/work",), 30, "/work"),
    "waiting": Service(("/wait",), 100, "/wait", threads=8),
    "free": MIXED._replace(is_free_threaded=True),
}


class Cell(NamedTuple):
    service: str

    def parameters(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        return self.service


def tune_command(service: Service, python: Path, for_s: float, json_file: Path) -> list[str]:
    command = [str(python), "-m", "headway", "tune", "serve", "tuned:app", "--load", *service.load]
    command += ["--rate", str(service.rate), "--path", service.path, "--for", str(for_s)]
    command += ["--block", str(BLOCK_S), "--washout", str(WASHOUT_S), "--json", str(json_file)]
    for policy in service.policies:
        command += ["--policy", policy]
    for interval_s in service.intervals_s:
        command += ["--switch-interval", str(interval_s)]
    command += ["--", "--policy", PRESENT.policy, "--threads", str(service.threads)]
    return [*command, "--free-threading"] if service.is_free_threaded else command


def tune(cell: Cell, free_threaded_python: Path, for_s: float) -> dict[str, float]:
    """One experiment. Returns what came of it: of `winner`, `equivalent`, `undecided` and `right`
    1 or 0; and how long it took."""
    service = SERVICES[cell.service]
    python = free_threaded_python if service.is_free_threaded else Path(sys.executable)
    environment = {**os.environ, "COMPUTING": "1" if service.has_job else ""}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tuned.json")
        ran = subprocess.run(
            tune_command(service, python, for_s, file),
            cwd=PROGRAMS,
            env=environment,
            capture_output=True,
            text=True,
            timeout=for_s + SPARE_S,
        )
        if ran.returncode != 0:
            lines = ran.stderr.strip().splitlines() or ["it says nothing"]
            raise ProgramError(f"headway tune serve, {cell}: {lines[-1]}")
        found = json.loads(file.read_text())
    winner = found["winner"] and Setting(**found["winner"])
    ratios = [
        each["effects"][FIGURE]["ratio"]
        for each in found["candidates"]
        if winner is None or Setting(**each["setting"]) == winner
    ]
    results = ("winner", "equivalent", "undecided")
    return {
        **{result: float(found["result"] == result) for result in results},
        "right": float(winner in service.best if winner else not service.best),
        "decided_s": found["elapsed_s"],
        "tune_rounds": float(max(each["round"] for each in found["blocks"])),
        "ratio": min((each for each in ratios if each is not None), default=float("nan")),
    }


def measure(options: argparse.Namespace) -> sitting.Experiments:
    names = [name for name in SERVICES if name in (options.service or SERVICES)]
    if any(SERVICES[name].is_free_threaded for name in names):
        build = free_threaded_build(options.free_threaded_python)
        print(f"free-threaded: CPython {build.version}")
    cells = [Cell(name) for name in names]
    figures: Figures[Cell] = Figures()
    tune_cell = partial(
        tune, free_threaded_python=options.free_threaded_python, for_s=options.seconds
    )
    for cell, found in sitting.rounds(NAME, options.rounds, cells, tune_cell):
        figures.record(cell, **found)
    lines = []
    targets: list[Statement] = []
    for cell in cells:
        counts = [
            f"{sum(figures.values(cell, figure)):.0f}"
            for figure in ("right", "winner", "equivalent", "undecided")
        ]
        medians = [
            number(figures.median(cell, figure)) for figure in ("decided_s", "tune_rounds", "ratio")
        ]
        best = SERVICES[cell.service].best
        known = " or ".join(map(str, best)) or "none"
        lines.append((cell.service, known, *counts, *medians))
        right = figures.values(cell, "right")
        share = sum(right) / len(right)
        targets.append(target(f"{cell}: the share of right answers", share, RIGHT_SHARE))
    print(table(HEADINGS, lines))
    print(LEGEND)
    print()
    print_targets(targets)
    return figures.experiments(NAME, Cell.parameters, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=10, seconds=120.0, quick_seconds=10.0, policies=())
    parser.add_argument(
        "--service",
        action="append",
        choices=tuple(SERVICES),
        help="may be given again (default: all)",
    )
    parser.add_argument(
        "--free-threaded-python",
        type=Path,
        default=FREE_THREADED_PYTHON,
        metavar="PYTHON",
        help="the interpreter of a free-threaded build with Headway",
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
