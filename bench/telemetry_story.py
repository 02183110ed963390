"""The published story of the switch interval, told by Headway's own recorder.

`headway telemetry` records servers of 10 processes of 1 thread, and of 2 of 5 at switch intervals
of 5, 2 and 0.1 ms and under the policy `deadline`, each on both readings of the published workload
(`deadline` computes until 3 ms have passed on the clock, `fixed` does the same work each time: see
bench/server_shapes.py), with 10 requests at once. What is printed is the recorder's own comparison
of these stretches of time, as its dashboard exports it. --store keeps the recording:

    headway telemetry --no-http --store /tmp/live.sqlite --recording story=FILE
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import sitting
import wrk
from figures import Figures
from load_cell import WARM_UP_S
from peers import HEADWAY, Server
from serving import free_port, serving
from visits import page_loops

from headway.programs.processes import ProgramError
from headway_lab.setting import started

NAME = "telemetry_story"
WORKLOADS = ("deadline", "fixed")
FIXED_WORK_S = 0.003
# Processes, threads, policy, switch interval.
SHAPES = (
    (10, 1, "interval", 0.005),
    (2, 5, "interval", 0.005),
    (2, 5, "interval", 0.002),
    (2, 5, "interval", 0.0001),
    (2, 5, "deadline", 0.005),
)
TIMEOUT_S = 30.0
# For the last reports of a stretch to come in.
SETTLE_S = 1.5


class Stretch(NamedTuple):
    """A workload in one configuration."""

    workload: str
    server: Server

    def parameters(self) -> dict[str, Any]:
        return {"workload": self.workload, **self.server.parameters()}

    @property
    def name(self) -> str:
        server = self.server
        interval = f"{server.switch_interval_s * 1e3:g} ms"
        policy = "" if server.policy == "interval" else f", {server.policy}"
        shape = f"{server.processes} x {server.threads}"
        return f"{self.workload} workload: {shape}, {interval}{policy}"

    def __str__(self) -> str:
        return self.name


class Recorder:
    """A running `headway telemetry`."""

    def __init__(self, socket: str, port: int) -> None:
        self.socket = socket
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, question: str) -> bytes:
        with urllib.request.urlopen(f"{self._url}/{question}", timeout=TIMEOUT_S) as answer:
            found: bytes = answer.read()
            return found

    def wait(self) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self.ask("now")
                return
            except OSError as error:
                if time.monotonic() > end_s:
                    raise ProgramError(f"headway telemetry does not answer: {error}") from None
            time.sleep(0.1)


@contextmanager
def recording(folder: Path, store: Path | None) -> Iterator[Recorder]:
    path, port = str(folder / "reports.sock"), free_port()
    words = [sys.executable, "-m", "headway", "telemetry", "--listen", f"unix:{path}"]
    words += ["--http", f"127.0.0.1:{port}", "--store", str(store or folder / "story.sqlite")]
    with started(words, "headway telemetry", speaks=False):
        recorder = Recorder(path, port)
        recorder.wait()
        yield recorder


def record(
    stretch: Stretch, recorder: Recorder, fixed_loops: int, seconds: float
) -> tuple[float, float]:
    """From when to when it was under load."""
    server = stretch.server._replace(telemetry=recorder.socket)
    with serving(server, "pages", Path(), FIXED_LOOPS=str(fixed_loops)) as served:
        path = f"/{stretch.workload}"
        wrk.load(served.port, path, WARM_UP_S)
        began = time.time()
        wrk.load(served.port, path, seconds)
        ended = time.time()
        time.sleep(SETTLE_S)
    return began, ended


def rows_of(ranges: dict[Stretch, tuple[float, float]]) -> str:
    """The recorder's question about all of them."""
    rows = [
        ("row", f"{quote(stretch.name)}~{began:.3f}~{ended:.3f}~")
        for stretch, (began, ended) in ranges.items()
    ]
    return urlencode(rows)


def measure(options: argparse.Namespace) -> sitting.Experiments:
    wrk.check()
    loops = page_loops(FIXED_WORK_S)
    stretches = [
        Stretch(workload, Server(HEADWAY, processes, threads, policy, interval_s))
        for workload in options.workload
        for processes, threads, policy, interval_s in SHAPES
    ]
    figures: Figures[Stretch] = Figures()
    with (
        tempfile.TemporaryDirectory(prefix="headway-bench-") as folder,
        recording(Path(folder), options.store) as recorder,
    ):

        def record_one(stretch: Stretch) -> tuple[float, float]:
            return record(stretch, recorder, loops, options.seconds)

        for number in range(options.rounds):
            ranges = dict(sitting.rounds(NAME, 1, stretches, record_one))
            print(f"\nround {number + 1} of {options.rounds}\n")
            print(recorder.ask(f"compare.md?{rows_of(ranges)}").decode())
            note(figures, ranges, recorder)
    return figures.experiments(NAME, Stretch.parameters, [])


def note(
    figures: Figures[Stretch], ranges: dict[Stretch, tuple[float, float]], recorder: Recorder
) -> None:
    rows = json.loads(recorder.ask(f"compare?{rows_of(ranges)}"))["rows"]
    for stretch, row in zip(ranges, rows, strict=True):
        summary = row["summary"]
        if not summary["requests"]:
            raise ProgramError(f"{stretch}: nothing was recorded")
        figures.record(
            stretch,
            requests_per_s=summary["rps"],
            response_p95_s=summary["response"]["p95"],
            application_mean_s=summary["application"]["mean"],
            gil_wait_p95_s=summary["gil_wait"]["p95"],
            cpu_per_process_cores=summary["cpu_per_process"],
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=1, seconds=20.0, quick_seconds=4.0, policies=())
    parser.add_argument(
        "--workload",
        nargs="+",
        choices=WORKLOADS,
        default=WORKLOADS,
        help="which reading of the published one (default: both)",
    )
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="keep the recording in this database"
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
