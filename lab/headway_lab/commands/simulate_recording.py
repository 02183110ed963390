"""`headway simulate --from RECORDING`: the command line's side of a prediction.

Reads options that the verb has parsed, and draws what was predicted. Nothing on stdout depends on
anything but the recording, the options and the calibration.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from math import isfinite
from typing import Any

from headway import json_file
from headway.errors import CommandError
from headway.output.drawing import number
from headway.output.outputs import check_apart, say, terminal
from headway.programs import signals
from headway.programs.progress import clear_progress, progress
from headway.report import units
from headway.report.columns import aligned
from headway_lab import results_file
from headway_lab.simulated import recording
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.fitting import Figures
from headway_lab.simulated.intervals import REPRODUCED, Interval
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.prediction import (
    DEFAULT_VALUES,
    PREDICTED,
    Predicted,
    Prediction,
    alternatives,
    configuration_of,
    predict,
    said,
)
from headway_lab.simulated.program import check_no_server_options, predict_program
from headway_lab.simulated.recording import Recording

TITLES = {
    "throughput": "requests/s",
    "response_s": "response",
    "wait_s": "GIL wait",
    "take_wait_p95_s": "p95 of a take",
}
POLICIES = ("interval", "ticks", "requests", "beazley", "priority", "deadline")
# Of the verb's names for CPython's own rule.
STOCK = "stock"
LEAST_VALUES = 4


def run(options: argparse.Namespace, machine: Machine, costs: Costs) -> int:
    """The exit code. Raises CommandError."""
    check_alone(options)
    policies = [known(each) for each in options.policy or ()]
    if options.values is not None and options.values < LEAST_VALUES:
        raise CommandError(
            f"--values: found {options.values}; allowed with --from: {LEAST_VALUES} or more, for "
            "an interval",
            exit_code=2,
        )
    json_path = None if options.json is None else json_file.check_path(options.json)
    check_apart({"--json": json_path}, {"--from": options.from_})
    stream, style = terminal(json_path == json_file.STDOUT)
    signals.watch()
    found = recording.read(options.from_)
    values = options.values or DEFAULT_VALUES
    try:
        if isinstance(found, Recording):
            asked = alternatives(
                configuration_of(found),
                policies,
                options.switch_interval or (),
                options.shape or (),
                options.cores,
            )
            predicted = predict(
                options.from_, found, asked, machine, costs, options.seed, values, progress
            )
            told, lines = predicted_dict(predicted), drawn(predicted)
        else:
            check_no_server_options(options)
            program = predict_program(
                options.from_,
                found,
                policies,
                options.switch_interval or (),
                options.cores,
                machine,
                options.seed,
                values,
                progress,
            )
            told, lines = program.to_dict(), program.lines()
    finally:
        clear_progress()
    say(stream, style, *lines)
    if json_path is not None:
        results_file.write_report(json_path, {"schema": 1, "seed": options.seed, **told})
    return 0


def check_alone(options: argparse.Namespace) -> None:
    """Raises CommandError (exit code 2) for what is of experiments alone."""
    if options.names:
        raise CommandError(
            f"--from: found the experiment {options.names[0]!r} beside it; allowed: no experiment",
            exit_code=2,
        )
    for option in ("threads", "workload", "mode", "seconds", "html", "timeline"):
        if getattr(options, option, None) is not None:
            raise CommandError(
                f"--{option}: --from has none; it has --policy, --switch-interval, --shape, "
                "--cores, --seed, --values and --json",
                exit_code=2,
            )


def known(policy: str) -> str:
    if policy == STOCK:
        return "interval"
    if policy not in POLICIES:
        allowed = ", ".join((STOCK, *POLICIES))
        raise CommandError(f"--policy: found {policy!r}; allowed: {allowed}", exit_code=2)
    return policy


def drawn(predicted: Predicted) -> list[str]:
    recorded = configuration_of(predicted.recording)
    measured, check = predicted.measured, predicted.check
    rows = [
        ["", *TITLES.values()],
        ["measured", *(figure(name, getattr(measured, name)) for name in PREDICTED)],
        ["simulated as recorded", *cells(check)],
        *([said(each.configuration), *cells(each)] for each in predicted.predictions),
    ]
    lines = [
        f"{predicted.recording.group or '(no group)'}: {said(recorded)}, "
        f"{units.number(recorded.cores, 'core')}; {requests(predicted.recording)} in "
        f"{predicted.recording.seconds:.1f} s",
        load_said(predicted),
        work_said(predicted),
        "",
        *aligned(rows, texts=len(rows[0])),
        "",
        *check_said(measured, check),
    ]
    if not predicted.predictions:
        lines.append("Ask for others with --policy, --switch-interval, --shape and --cores.")
    return lines


def requests(found: Recording) -> str:
    count = sum(worker.record["request_count"] for worker in found.workers)
    return units.number(count, "request")


def load_said(predicted: Predicted) -> str:
    demand = predicted.demand
    if demand.is_open:
        return (
            "Load: requests come on new connections, at a rate that does not depend on the "
            "responses."
        )
    think = f"think for {units.seconds(demand.think_s)} and " if demand.think_s else ""
    return f"Load: {units.number(demand.total, 'connection')}; their clients {think}ask again."


def work_said(predicted: Predicted) -> str:
    lean = predicted.lean
    if not lean.is_known:
        return (
            "Work: this recording does not show whether requests do fixed work or compute until "
            "a time has passed; the intervals cover both."
        )
    if lean.value > 0:
        return (
            "Work: requests compute until a time has passed. Threads that lost their core had "
            "less CPU time, and the same time with the GIL."
        )
    return (
        "Work: fixed. Threads that lost their core held the GIL for longer, and had the same CPU "
        "time."
    )


def check_said(measured: Figures, check: Prediction) -> Iterable[str]:
    off = []
    for name, title in TITLES.items():
        real, found = getattr(measured, name), check.intervals[name].middle
        if real and abs(found / real - 1) > REPRODUCED:
            off.append(f"{title} {found / real - 1:+.0%}")
    if off:
        yield (
            "A simulation of the recorded setting differs from the measured figures: "
            f"{', '.join(off)}. The intervals are wider because of this."
        )
    else:
        yield (
            f"A simulation of the recorded setting has all figures within {REPRODUCED:.0%} of the "
            "measured ones."
        )


def cells(prediction: Prediction) -> list[str]:
    return [span(name, prediction.intervals[name]) for name in PREDICTED]


def span(name: str, interval: Interval) -> str:
    low, middle, high = (figure(name, each) for each in interval)
    return f"{middle} ({low} to {high})"


def figure(name: str, value: float) -> str:
    return number(value) if name == "throughput" else units.seconds(value)


def predicted_dict(predicted: Predicted) -> dict[str, Any]:
    lean = predicted.lean
    work = ("by the clock" if lean.value > 0 else "fixed") if lean.is_known else None
    return {
        "kind": "server",
        "recorded": configuration_of(predicted.recording)._asdict(),
        "demand": predicted.demand._asdict(),
        "work_ends": work,
        "measured": {name: getattr(predicted.measured, name) for name in PREDICTED},
        "simulated": prediction_dict(predicted.check),
        "misfit": predicted.misfit,
        "predictions": [prediction_dict(each) for each in predicted.predictions],
    }


def prediction_dict(prediction: Prediction) -> dict[str, Any]:
    """A response that never comes is `null`: JSON has no word for it."""
    return {
        "configuration": prediction.configuration._asdict(),
        **{
            name: {end: each if isfinite(each) else None for end, each in found._asdict().items()}
            for name, found in prediction.intervals.items()
        },
    }
