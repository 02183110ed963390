"""The verb `headway ccbench`: the options and the output of the benchmark of that name.

What it prints can be laid beside what ccbench printed; what it measures is measured by the
experiments of `headway bench`, one value a line. Each line comes when it was measured.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from headway.bench import interpreters, metadata, outputs, signals
from headway.bench.command import policies_for
from headway.bench.experiment import STOCK, Choice, Measured
from headway.bench.experiments.bandwidth import Bandwidth
from headway.bench.experiments.ccbench import WORKLOADS, WorkloadExperiment
from headway.bench.experiments.latency import Latency
from headway.bench.experiments.throughput import Throughput
from headway.bench.options import MAX_THREADS, interval_s, seconds, whole_number
from headway.bench.processes import DEFAULT_SWITCH_INTERVAL_S, BenchmarkError
from headway.bench.rounds import measure_undisturbed
from headway.terminal import Style

DEFAULT_THREADS = 4
DEFAULT_SECONDS = 2.0

DESCRIPTION = """\
ccbench, the benchmark that came with the GIL of CPython 3.2 and was part of CPython up to 3.11: how
much several threads compute (A: digits of pi, in Python; B: a regular expression, in C that keeps
the GIL; C: bz2, in C that drops it), how long a UDP packet waits beside them, and how many packets
are echoed. Without -t, -l or -b: all three.

Options and output are ccbench's, so that old results can be laid beside. Different are:
  calls       the workloads are of the same kinds, but not the same code: percentages compare with
              old results, calls a second do not
  packets     the latency is that of some hundred packets, up to a thousand a second, not of 20;
              each is sent at a random moment once the one before has been received
  -i          in seconds, as -I: a check interval in bytecodes is no more
  processes   every line is measured by fresh ones, also of another --python, and --policy lets
              Headway schedule their GIL
Whole milliseconds hide most of it: `headway bench latency` has percentiles, all policies, and
medians of interleaved rounds; so have `headway bench throughput` and `headway bench bandwidth`.
"""


class Test(NamedTuple):
    """`introduction` comes before the name of a workload. `figure` is what a line ends in, beside
    what the first line had."""

    title: str
    experiment: WorkloadExperiment
    workloads: tuple[str, ...]
    introduction: str
    threads_are: str
    figure: Callable[[Measured, Measured], str]


def iterations(found: Measured, first: Measured) -> str:
    unit = " iterations/s." if found is first else percentage(found, first)
    return f"{int(found.value)}{unit}"


def milliseconds(found: Measured, _: Measured) -> str:
    figures = found.figures
    return f"{int(figures['mean_ms'])} ms. (std dev: {int(figures['std_ms'])} ms.)"


def packets(found: Measured, first: Measured) -> str:
    unit = " packets/s." if found is first else percentage(found, first)
    return f"{found.value:.1f}{unit}"


def percentage(found: Measured, first: Measured) -> str:
    # The first may have got nothing done in a short time.
    return f" ( {int(found.value / first.value * 100)} %)" if first.value else " ( - %)"


ALL = ("A", "B", "C")
BESIDE = ("Background CPU task: ", "CPU threads")
TESTS = {
    "throughput": Test("Throughput", Throughput(), ALL, "", "threads", iterations),
    "latency": Test("Latency", Latency(), ALL, *BESIDE, milliseconds),
    "bandwidth": Test("I/O bandwidth", Bandwidth(), ("A",), *BESIDE, packets),
}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("-t", "--throughput", action="store_true", help="run throughput tests")
    parser.add_argument("-l", "--latency", action="store_true", help="run latency tests")
    parser.add_argument("-b", "--bandwidth", action="store_true", help="run I/O bandwidth tests")
    parser.add_argument(
        "-i",
        "--interval",
        dest="switch_interval",
        type=no_check_interval,
        default=DEFAULT_SWITCH_INTERVAL_S,
        metavar="S",
        help="the switch interval in seconds, such as 0.005 (default: CPython's)",
    )
    parser.add_argument(
        "-I",
        "--switch-interval",
        type=interval_s,
        metavar="S",
        help="the same, as ccbench calls it",
    )
    parser.add_argument(
        "-n",
        "--num-threads",
        type=lambda text: whole_number(text, 1, MAX_THREADS),
        default=DEFAULT_THREADS,
        metavar="N",
        help=f"as many threads at most (default: {DEFAULT_THREADS})",
    )
    parser.add_argument(
        "--policy",
        default=STOCK,
        metavar="P",
        help=f"a policy of Headway that schedules the GIL (default: {STOCK}, plain python)",
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=DEFAULT_SECONDS,
        metavar="S",
        help=f"how long a line is measured (default: {DEFAULT_SECONDS:g}, as ccbench)",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="the interpreter to measure (default: the one that runs this); a free-threaded one is "
        "measured with its GIL",
    )


def no_check_interval(text: str) -> float:
    """ccbench's -i was a number of bytecodes, for CPython up to 3.8."""
    if text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"found {text!r}, a check interval in bytecodes, which no CPython has any more; it is "
            "the switch interval in seconds, such as 0.005"
        )
    return interval_s(text)


def run(options: argparse.Namespace) -> int:
    choice = choose(options)
    asked = [test for name, test in TESTS.items() if getattr(options, name)]
    signals.watch()
    say(*heading(choice), "")
    complete = True
    for test in asked or TESTS.values():
        say(f"--- {test.title} ---", "")
        complete &= show(test, choice, options.num_threads)
    return int(not complete)


def choose(options: argparse.Namespace) -> Choice:
    """Raises CommandError (exit code 2) for what cannot be chosen."""
    interpreter = interpreters.chosen(options.python)
    return Choice(
        interpreter=interpreter,
        policies=policies_for(interpreter, (options.policy,)),
        switch_intervals_s=(options.switch_interval,),
        seconds=options.seconds,
    )


def heading(choice: Choice) -> list[str]:
    interpreter = choice.interpreter
    # "3.13.0 (main, Jun  4 2026, 10:11:12) [GCC ...]": what stands first in the parentheses.
    build = interpreter.build.partition("(")[2].partition(",")[0]
    lines = [
        f"== CPython {interpreter.name} ({build}) ==",
        f"== {platform.machine()} {platform.system()} on '{metadata.cpu_model()}' ==",
    ]
    if choice.policies != (STOCK,):
        lines.append(f"== Headway {interpreter.headway}, policy {choice.policies[0]} ==")
    return lines


def show(test: Test, choice: Choice, most_threads: int) -> bool:
    """Each line as soon as it was measured. False if something was not."""
    experiment, complete = test.experiment, True
    threads = tuple(range(experiment.least_threads, most_threads + 1))
    rows = experiment.rows(replace(choice, workloads=test.workloads, threads=threads))
    for workload in test.workloads:
        say(test.introduction + WORKLOADS[workload], "")
        first: Measured | None = None
        for row in rows:
            parameters = row.parameters
            if row.left_out or parameters["workload"] != workload:
                continue
            count = parameters[experiment.threads_are]
            try:
                found = measure_undisturbed(partial(experiment.measure, row, choice, {}))
            except BenchmarkError as error:
                say(f"{test.threads_are}={count}: {error}")
                complete = False
            else:
                first = first or found
                say(f"{test.threads_are}={count}: {test.figure(found, first)}")
        say("")
    return complete


def say(*lines: str) -> None:
    style = Style.of_stream(sys.stdout.fileno(), sys.stdout.encoding or "ascii")
    outputs.say(sys.stdout, style, *lines)
