#!/usr/bin/env python3
"""Runs the programs of tests/gallery in all views, and prints a table of what was said right.

Usage: .venv/bin/python scripts/gallery.py [--real] [--runs N] [--only NAME ...]

Each program runs N times under `headway run`, once more beside a process that takes a core, once
under a recorder, and once until SIGKILL. For those in which threads wait, what `priority` would
have prevented is compared with a run under `priority`. Takes 20 minutes with five runs. --real
takes the programs of packages, which need an environment of their own:

    scripts/build .venvs/gallery 3.13 tests/gallery/requirements.txt
    .venvs/gallery/bin/python scripts/gallery.py --real

Exit status: 0 if at least 95 % was right, 1 if less was, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "gallery"))
sys.path.append(str(ROOT / "examples" / "shop"))

from known_causes import REAL, SITUATIONS, Situation  # noqa: E402

from headway.programs.processes import started  # noqa: E402
from running import running  # noqa: E402

HEADWAY = [sys.executable, "-m", "headway"]
BUSY = [sys.executable, "-c", "while True: pass"]
TIMEOUT_S = 120
GOAL = 0.95


def environment(**changes: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADWAY")}
    return {**kept, "COLUMNS": "200", **changes}


def run(command: list[str], **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(**changes), capture_output=True, text=True, timeout=TIMEOUT_S
    )


def sentence_in(text: str) -> str:
    """The last paragraph of a report, as one line."""
    return " ".join(text.strip().split("\n\n")[-1].split())


def under_run(situation: Situation, folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Returns the sentence on one run, and its report."""
    out = folder / "out.json"
    result = run([*HEADWAY, "run", "--json", str(out), *options, program_of(situation)])
    return sentence_in(result.stderr), json.loads(out.read_text())


def program_of(situation: Situation) -> str:
    return str(situation.path)


def until_killed(situation: Situation, folder: Path, after_s: float) -> str:
    """Returns the sentence of `headway report` on a run that SIGKILL ends after this time."""
    ledger = folder / "killed.ledger"
    reports = {"HEADWAY": f"report={ledger}"}
    command = [sys.executable, program_of(situation)]
    with started(command, situation.program, speaks=False, environment=reports) as program:
        time.sleep(after_s)
        os.killpg(program.process.pid, signal.SIGKILL)
    return sentence_in(run([*HEADWAY, "report", str(ledger)]).stdout)


def under_recorder(situation: Situation, folder: Path, after_s: float) -> str:
    """The name of the verdict on the total while the program runs, after this time."""
    target = f"unix:{folder / 'socket'}"
    recorder = ["telemetry", "--no-store", "--http", "127.0.0.1:0", "--listen", target]
    reports = {"HEADWAY": f"telemetry={target}"}
    command = [sys.executable, program_of(situation)]
    with (
        running(folder / "recorder.log", recorder) as (url, _),
        started(command, situation.program, speaks=False, environment=reports),
    ):
        time.sleep(after_s)
        with urlopen(f"{url}/api/v1/now?window=2", timeout=TIMEOUT_S) as answer:
            return str(json.load(answer)["total"]["verdict"]["name"])


def predicted_and_spared(
    situation: Situation, folder: Path, report: dict[str, Any]
) -> tuple[float, float] | None:
    """Returns the seconds of waiting that `priority` would have prevented, and those that it does
    prevent, of the threads at least half of whose waits are of this kind."""

    def rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for process in (report, *report["children"]):
            yield from process["threads"]

    short = {
        row["name"]: row
        for row in rows(report)
        if row["waited_s"] > 0.02 and row["waited_preventable_s"] >= row["waited_s"] / 2
    }
    if not short:
        return None
    _, other = under_run(situation, folder, "--policy", "priority")
    waited_s = {row["name"]: row["waited_s"] for row in rows(other)}
    predicted = sum(row["waited_preventable_s"] for row in short.values())
    spared = sum(row["waited_s"] - waited_s.get(name, 0.0) for name, row in short.items())
    return predicted, spared


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [each.program for each in (*SITUATIONS, *REAL)]
    parser.add_argument("--real", action="store_true", help="the programs of packages")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="runs of each (5)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="these programs")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs is {options.runs}, and must be at least 1")
    right = tried = 0
    print(
        "| situation | run | beside a busy process | recorder | kill -9 "
        "| prevented: predicted, measured |"
    )
    print("|---|---|---|---|---|---|")
    wrong = []
    for situation in REAL if options.real else SITUATIONS:
        if options.only and situation.program not in options.only:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)

            def judge(sentence: str, view: str, judged: Situation = situation) -> bool:
                problem = judged.problem(sentence)
                if problem:
                    wrong.append(f"{judged.program}, {view}: {problem}: {sentence}")
                return problem is None

            results = [under_run(situation, folder) for _ in range(options.runs)]
            good = [judge(sentence, "run") for sentence, _ in results]
            with started(BUSY, "a busy process", speaks=False):
                good.append(judge(under_run(situation, folder)[0], "beside a busy process"))
            # Once it does what it does, and before it ends by itself.
            after_s = 0.75 * results[0][1]["wall_s"]
            verdict = under_recorder(situation, folder, after_s)
            good.append(verdict in situation.verdicts)
            if not good[-1]:
                wrong.append(f"{situation.program}, recorder: {verdict}")
            good.append(judge(until_killed(situation, folder, after_s), "kill -9"))
            both = predicted_and_spared(situation, folder, results[0][1])
        right, tried = right + sum(good), tried + len(good)
        marks = ["right" if each else "WRONG" for each in good[options.runs :]]
        told = "" if both is None else f"{both[0]:.2f} s, {both[1]:.2f} s"
        runs = f"{sum(good[: options.runs])} of {options.runs}"
        print(f"| {situation.program} | {runs} | {' | '.join(marks)} | {told} |", flush=True)
    print(f"\n{right} of {tried} right ({100 * right / tried:.1f} %)")
    print("\n".join(wrong))
    return 0 if right >= GOAL * tried else 1


if __name__ == "__main__":
    raise SystemExit(main())
