"""Measures the cost of the meter on this machine, and the cost of a trace in addition.

Rounds with and without alternate in one process, so that drift of the machine hits both alike; the
difference is the median over pairs of rounds, given with its quartiles. The worst case is a loop of
ctypes calls, each of which drops the GIL and takes it again at once. With valgrind installed,
instructions are counted as well: they do not depend on what else the machine does.
"""

from __future__ import annotations

import ctypes
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import callgrind
import sitting
from figures import experiment

from headway import gil
from headway.errors import CommandError
from headway.meter import engine
from headway.output.metadata import Circumstances
from headway_lab.results_file import KeptExperiment

NAME = "meter"
ROUNDS = 41
QUICK_ROUNDS = 5
TRACE_EVENTS = 4096
NS = 1e9
call_without_gil = ctypes.CDLL(None).abs


class Paired(NamedTuple):
    """Seconds per operation, by round, without and with the meter, or a trace."""

    off_s: list[float]
    on_s: list[float]

    def differences(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile of the paired differences."""
        pairs = zip(self.off_s, self.on_s, strict=True)
        low, middle, high = statistics.quantiles((on - off for off, on in pairs), n=4)
        return low, middle, high

    def experiment(self, name: str, parameter: str = "meter") -> KeptExperiment:
        rows = (("off", self.off_s), ("on", self.on_s))
        return experiment(f"{NAME} {name}", "s", [({parameter: each}, s) for each, s in rows])


def drop_and_take(count: int) -> None:
    call = call_without_gil
    for _ in range(count):
        call(1)


def compute(count: int) -> None:
    for _ in range(count):
        total = 0
        for number in range(20_000):
            total += number * number


def serve_one_ms(count: int) -> None:
    """Requests in the shape of a server's: receive, a millisecond of Python, send."""
    client, server = socket.socketpair()
    with client, server:
        for _ in range(count):
            client.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
            server.recv(4096)
            compute(1)
            server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            client.recv(4096)


def seconds_per_operation(work: Callable[[int], None], count: int) -> float:
    began = time.perf_counter_ns()
    work(count)
    return (time.perf_counter_ns() - began) / count / NS


def pair(work: Callable[[int], None], count: int, rounds: int) -> Paired:
    work(count)
    off, on = [], []
    for _ in range(rounds):
        off.append(seconds_per_operation(work, count))
        gil.install()
        on.append(seconds_per_operation(work, count))
        gil.uninstall()
    return Paired(off, on)


def pair_traced(work: Callable[[int], None], count: int, rounds: int) -> Paired:
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for traced in seconds:
            gil.install()
            if traced:
                engine.begin_trace(TRACE_EVENTS)
            seconds[traced].append(seconds_per_operation(work, count))
            engine.read_trace()
            gil.uninstall()
    return Paired(seconds[False], seconds[True])


def clock_read_seconds() -> float:
    """One clock_gettime(CLOCK_MONOTONIC), measured in C, without Python around it."""
    source = (
        "#include <stdio.h>\n#include <time.h>\n"
        "int main(void) { struct timespec a, b, t; clock_gettime(CLOCK_MONOTONIC, &a);\n"
        "for (int i = 0; i < 5000000; i++) clock_gettime(CLOCK_MONOTONIC, &t);\n"
        "clock_gettime(CLOCK_MONOTONIC, &b);\n"
        'printf("%.3f", ((b.tv_sec - a.tv_sec) * 1e9 + b.tv_nsec - a.tv_nsec) / 5e6); }\n'
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "clock"
        compile_command = ["cc", "-O2", "-x", "c", "-", "-o", str(program)]
        subprocess.run(compile_command, input=source, text=True, check=True)
        runs = [subprocess.run([program], capture_output=True, text=True) for _ in range(5)]
    return statistics.median(float(run.stdout) for run in runs) / NS


def instructions_per_pair(*before: str) -> float | None:
    """The instructions of one drop and take after these statements, including those of Python
    around the pair; None without valgrind."""
    first = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import meter"
    code = "; ".join((first, *before, "meter.drop_and_take(int(sys.argv[1]))"))
    counted = callgrind.per_operation(sys.executable, code)
    return None if counted is None else counted.all


def tell(name: str, unit: str, scale: float, result: Paired) -> None:
    low, difference, high = result.differences()
    off, on = statistics.median(result.off_s), statistics.median(result.on_s)
    print(
        f"{name}: {off * scale:.4g} {unit} without, {on * scale:.4g} with; "
        f"difference {difference * scale:+.3g} {unit} ({100 * difference / off:+.2f} %), quartiles "
        f"{low * scale:+.3g} to {high * scale:+.3g}",
        flush=True,
    )


def measure(rounds: int) -> sitting.Experiments:
    print(f"CPython {platform.python_version()}, {platform.machine()}, {rounds} pairs of rounds")
    clock = clock_read_seconds()
    worst = pair(drop_and_take, 100_000, rounds)
    tell("a drop and a take, uncontended", "ns", NS, worst)
    print(
        f"  two clock reads alone: {2 * clock * NS:.1f} ns; "
        f"the meter's cost is {worst.differences()[1] / (2 * clock):.2f} times that"
    )
    traced = pair_traced(drop_and_take, 100_000, rounds)
    tell("its trace, under the meter", "ns", NS, traced)
    install, begin_trace = "meter.engine.install(None)", f"meter.engine.begin_trace({TRACE_EVENTS})"
    without, with_meter = instructions_per_pair(), instructions_per_pair(install)
    with_trace = instructions_per_pair(install, begin_trace)
    if without is not None and with_meter is not None and with_trace is not None:
        print(
            f"  instructions: {without:.0f} without, {with_meter:.0f} with: "
            f"{with_meter - without:+.0f} ({100 * (with_meter / without - 1):+.1f} %); "
            f"{with_trace:.0f} with a trace, {(with_trace - with_meter) / 2:+.0f} an event"
        )
    else:
        print("  instructions: not counted, valgrind is not installed")
    computed = pair(compute, 30, rounds)
    tell("pure-Python compute", "ms", 1e3, computed)
    served = pair(serve_one_ms, 30, rounds)
    tell("a request of about a millisecond", "ms", 1e3, served)
    named = {"drop and take": worst, "compute": computed, "request": served}
    experiments = [result.experiment(name) for name, result in named.items()]
    return [*experiments, traced.experiment("drop and take, traced", "trace")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    parser.add_argument(
        "--rounds", type=sitting.at_least_two, metavar="N", help="pairs of rounds (default: 41)"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} pairs of rounds")
    parser.add_argument(
        "--json", metavar="FILE", help="also write the values of every round to FILE"
    )
    try:
        options = parser.parse_args(arguments)
        sitting.check_json(options.json)
        rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
        circumstances = Circumstances()
        experiments = measure(rounds)
        if options.json:
            sitting.write_json(options.json, circumstances, experiments, rounds=rounds)
    except CommandError as error:
        print(f"bench {NAME}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
