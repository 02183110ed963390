"""Compares the predictions of `headway simulate --from` with measurements.

Two processes of five threads serve a page of 3 ms of Python and 1 ms of waiting to ten clients, at
a switch interval of 5 ms, and are recorded by `headway telemetry --store`. From that alone it is
predicted what 2 ms, 0.1 ms and the policy `deadline` would do; then each is run and recorded.
Both readings of the page: `deadline` computes until 3 ms have passed on the clock, `fixed` does as
much work each time.

The ten cases that count, fixed beforehand: requests/s and the clients' mean response of five of the
six pairs (COUNTED). Since the clients ask again at once, the two say much the same. The sixth pair
and the waits for the GIL are shown, and not counted. At least 8 of the 10 are to lie within their
intervals.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import sitting
from figures import target

from headway.output.drawing import number
from headway.output.results import Result, Results
from headway.programs.processes import ChildProgram, ProgramError, Window
from headway.programs.progress import clear_progress, progress
from headway.report import units
from headway_lab.measured.wsgi.experiment import FIXED_WORK_S, TRIAL_LOOPS
from headway_lab.measured.wsgi.load import CONNECTIONS, work_s
from headway_lab.measured.wsgi.server import Served, Shape, headway_command
from headway_lab.results_file import KeptExperiment
from headway_lab.setting import STOCK, Setting, program, started
from headway_lab.simulated import recording
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.fitting import demand_of, figures_of
from headway_lab.simulated.intervals import MODEL_ERROR, Interval
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.prediction import Predicted, configuration_of, predict, said

NAME = "what_if"
PROCESSES, THREADS = 2, 5
RECORDED = Setting("interval", 0.005)
CHANGES = (Setting("interval", 0.002), Setting("interval", 0.0001), Setting("deadline", 0.005))
WORKLOADS = ("deadline", "fixed")
# By workload: indices into CHANGES.
COUNTED = {"deadline": (0, 1, 2), "fixed": (0, 1)}
COUNTED_FIGURES = ("throughput", "response_s")
LEAST_INSIDE = 8
WARM_UP_S = 0.5
# A recording is longer than a measurement, because the prediction has no other source.
RECORDING_FACTOR = 2
# Of recordings, since one may turn out to support no prediction.
ATTEMPTS = 3
START_TIMEOUT_S = 30.0
POLL_S = 0.02
FIGURES = {
    "throughput": "requests/s",
    "response_s": "response",
    "wait_s": "GIL wait of a request",
    "take_wait_p95_s": "p95 of a take's wait",
}


class Case(NamedTuple):
    """A figure of a change, predicted and measured."""

    workload: str
    change: str
    figure: str
    predicted: Interval
    measured: float
    is_counted: bool

    @property
    def is_inside(self) -> bool:
        return self.predicted.has(self.measured)


def record(
    store: Path, setting: Setting, workload: str, fixed_loops: int, seconds: float
) -> dict[str, float]:
    """Serves and records. Returns the clients' figures and those of the recording."""
    shape = Shape("headway", PROCESSES, THREADS, False, setting)
    socket = store.with_suffix(".socket")
    recorder_words = [sys.executable, "-m", "headway", "telemetry", "--no-http"]
    recorder_words += ["--listen", f"unix:{socket}", "--store", str(store)]
    environment = {"FIXED_LOOPS": str(fixed_loops)}
    with (
        recording_program(recorder_words, socket),
        started(
            headway_command(shape, socket), str(shape), speaks=False, environment=environment
        ) as server,
    ):
        served = Served(shape, server, None)
        words = (str(served.port), f"/{workload}", str(CONNECTIONS))
        with program(STOCK, "http_load", *words) as clients:
            clients.answer()
            clients.measure(Window.after(WARM_UP_S, seconds))
            answer = clients.answer()
    if answer["errors"] or not answer["latencies_s"]:
        raise ProgramError(f"{shape}: {answer['errors']} requests failed")
    found = recording.read(str(store))
    assert isinstance(found, recording.Recording), "a store was written"
    figures = figures_of([worker.record for worker in found.workers], demand_of(found))
    return {
        **figures._asdict(),
        "throughput": len(answer["latencies_s"]) / seconds,
        "response_s": fmean(answer["latencies_s"]),
    }


@contextmanager
def recording_program(words: list[str], socket: Path) -> Iterator[ChildProgram]:
    """Yields the recorder once it receives; afterwards, all that it received is committed."""
    with started(words, "headway telemetry", speaks=False) as recorder:
        end_s = time.monotonic() + START_TIMEOUT_S
        while not socket.exists():
            if recorder.process.poll() is not None or time.monotonic() > end_s:
                raise ProgramError(f"headway telemetry: {recorder.last_message()}")
            time.sleep(POLL_S)
        yield recorder


def predicted_from(store: Path) -> Predicted:
    found = recording.read(str(store))
    assert isinstance(found, recording.Recording), "a store was written"
    recorded = configuration_of(found)
    asked = [
        recorded._replace(policy=str(each.policy), switch_interval_s=each.switch_interval_s)
        for each in CHANGES
    ]
    return predict(str(store), found, asked, Machine(), Costs())


def measure(options: argparse.Namespace) -> sitting.Experiments:
    fixed_loops = round(TRIAL_LOOPS * FIXED_WORK_S / work_s(STOCK, TRIAL_LOOPS))
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as name:
        folder = Path(name)
        for workload in WORKLOADS:
            cases += compare(folder, workload, fixed_loops, options)
    counted = [case for case in cases if case.is_counted]
    inside = sum(case.is_inside for case in counted)
    print(
        f"{inside} of the {len(counted)} cases that count are inside, of which at least "
        f"{LEAST_INSIDE} are to be; of all {len(cases)} figures shown, "
        f"{sum(case.is_inside for case in cases)}. MODEL_ERROR is {MODEL_ERROR:g}; without it the "
        f"furthest of those that count would be {furthest(counted):.0%} beyond its interval."
    )
    return experiments(cases, inside)


def compare(
    folder: Path, workload: str, fixed_loops: int, options: argparse.Namespace
) -> list[Case]:
    predicted = recorded_and_predicted(folder, workload, fixed_loops, options)
    clear_progress()
    show_recording(workload, predicted)
    cases = []
    for place, (setting, prediction) in enumerate(zip(CHANGES, predicted.predictions, strict=True)):
        change = said(prediction.configuration)
        runs = []
        for number_ in range(options.rounds):
            progress(f"{workload}: {change}")
            run_store = folder / f"{workload}-{place}-{number_}.sqlite"
            runs.append(record(run_store, setting, workload, fixed_loops, options.seconds))
        clear_progress()
        is_counted = place in COUNTED[workload]
        for figure in FIGURES:
            case = Case(
                workload,
                change,
                figure,
                prediction.intervals[figure],
                median(run[figure] for run in runs),
                is_counted and figure in COUNTED_FIGURES,
            )
            show(case)
            cases.append(case)
    print()
    return cases


def recorded_and_predicted(
    folder: Path, workload: str, fixed_loops: int, options: argparse.Namespace
) -> Predicted:
    """Records again if other programs of this machine changed the load meanwhile."""
    for attempt in range(ATTEMPTS):
        progress(f"{workload}: recording")
        store = folder / f"{workload}-{attempt}-recorded.sqlite"
        try:
            record(store, RECORDED, workload, fixed_loops, RECORDING_FACTOR * options.seconds)
            progress(f"{workload}: predicting")
            return predicted_from(store)
        except recording.Unfit as unfit:
            if attempt == ATTEMPTS - 1:
                raise
            progress(f"{workload}: {unfit}; again")
    raise AssertionError("the last attempt has ended it")


def show_recording(workload: str, predicted: Predicted) -> None:
    lean = predicted.lean
    told = ("ends by the clock" if lean.value > 0 else "is fixed") if lean.is_known else "unknown"
    print(f"workload {workload}: told from the recording: work {told} (lean {lean.value:+.3f})")
    figures = [
        f"{FIGURES[name]} {form(name, getattr(predicted.measured, name))} "
        f"(simulated {form(name, predicted.check.intervals[name].middle)})"
        for name in FIGURES
    ]
    print(f"  recorded: {', '.join(figures)}")


def show(case: Case) -> None:
    low, middle, high = (form(case.figure, each) for each in case.predicted)
    where = "inside" if case.is_inside else "OUTSIDE"
    print(
        f"  {case.change:<22}{FIGURES[case.figure]:<24}{middle:>9}  {low:>9} to {high:<9}"
        f"measured {form(case.figure, case.measured):>9}  "
        f"{where}{'' if case.is_counted else ' (not counted)'}",
        flush=True,
    )


def form(figure: str, value: float) -> str:
    return number(value) if figure == "throughput" else units.seconds(value)


def furthest(cases: list[Case]) -> float:
    """The largest share by which an interval without MODEL_ERROR would have to be wider."""
    return max(
        max(
            case.predicted.low * (1 + MODEL_ERROR) / case.measured - 1,
            case.measured * (1 + MODEL_ERROR) / case.predicted.high - 1,
            0.0,
        )
        for case in cases
    )


def experiments(cases: list[Case], inside: int) -> sitting.Experiments:
    """An experiment for each figure: what was measured, beside the predicted interval."""
    found = []
    for figure in FIGURES:
        unit = "requests/s" if figure == "throughput" else "s"
        results = Results(f"{NAME} {figure}", unit, [], {})
        for case in cases:
            if case.figure == figure:
                row = Result({"workload": case.workload, "change": case.change})
                predicted = {f"predicted_{k}": v for k, v in case.predicted._asdict().items()}
                row.add(case.measured, predicted, ())
                results.rows.append(row)
        found.append(KeptExperiment(results, None, []))
    statement = target("cases that count within their predicted intervals", inside, LEAST_INSIDE)
    found[0].statements.append(statement.checked())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=1, seconds=6.0, quick_seconds=2.5, policies=())
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
