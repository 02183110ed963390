"""A sitting of one benchmark: its options, its rounds, its progress, its end.

A round measures every cell that is compared, so that drift of the machine affects all cells alike;
every other round runs backwards. Progress goes to stderr, results to stdout. This module does not
know what a benchmark measures.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn, TypeVar

try:
    from headway import json_file
    from headway.errors import CommandError
    from headway.options import Whole, argument
    from headway.output.metadata import Circumstances
    from headway.programs import interpreters, signals
    from headway.programs.processes import ProgramError
    from headway.programs.progress import clear_progress, progress
    from headway_lab import results_file
    from headway_lab.options import DURATION, MAX_THREADS
    from headway_lab.results_file import Kept, KeptExperiment
    from headway_lab.rounds import measure_undisturbed
    from headway_lab.setting import check_policies
except ImportError:
    sys.exit(f"bench: {sys.executable} has no headway-lab: `make lab`, then use .venv/bin/python")

DEFAULT_POLICIES = ("deadline", "priority")
QUICK_ROUNDS = 2
positive_seconds = argument(DURATION)

Cell = TypeVar("Cell")
Found = TypeVar("Found")
Experiments = list[KeptExperiment]
Measure = Callable[[argparse.Namespace], Experiments]


class Parser(argparse.ArgumentParser):
    """The options of all benchmarks. An error message is one line."""

    def __init__(self, name: str, description: str | None) -> None:
        super().__init__(
            prog=f"bench/{name}.py",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise ProgramError(f"{message} (see --help)", exit_code=2)


def prepare_parser(
    parser: Parser,
    *,
    rounds: int,
    seconds: float,
    quick_seconds: float,
    policies: Sequence[str] = DEFAULT_POLICIES,
) -> None:
    """Adds the options that benchmarks share, with this benchmark's defaults. Without `policies`
    the default is that of `headway serve`."""
    parser.add_argument(
        "--rounds", type=at_least_one, metavar="N", help=f"how many rounds (default: {rounds})"
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        metavar="S",
        help=f"how long each cell is measured (default: {seconds:g})",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_ROUNDS} rounds of {quick_seconds:g} s: shows that it runs, not how fast",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="P",
        help="a policy of Headway to measure; may be given again (default: "
        + (" and ".join(policies) or "headway serve's own")
        + ")",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write the values of every round to FILE"
    )
    parser.set_defaults(defaults=(rounds, seconds, quick_seconds, policies))


def add_threads(parser: Parser, option: str, counts: Sequence[int], text: str) -> None:
    """Adds an option that takes numbers of threads; 0 is allowed only if `counts` contains it."""
    add_counts(parser, option, counts, text, thread_count if 0 in counts else positive_thread_count)


def add_counts(
    parser: Parser, option: str, counts: Sequence[int], text: str, type: Callable[[str], int]
) -> None:
    """Adds an option that takes one or more numbers; `counts` is the default."""
    parser.add_argument(
        option,
        type=type,
        nargs="+",
        default=counts,
        metavar="N",
        help=f"{text} (default: {' '.join(map(str, counts))})",
    )


def complete(options: argparse.Namespace) -> None:
    rounds, seconds, quick_seconds, policies = options.defaults
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else rounds)
    options.seconds = options.seconds or (quick_seconds if options.quick else seconds)
    # In the order given, each once.
    options.policy = list(dict.fromkeys(options.policy or policies))


def at_least_one(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"found {text!r}; it is a whole number from {least} on")
    return int(text)


def at_least_two(text: str) -> int:
    """A count that suffices for quartiles."""
    return at_least_one(text, least=2)


def thread_count(text: str, least: int = 0) -> int:
    count: int = argument(Whole(least, MAX_THREADS))(text)
    return count


def positive_thread_count(text: str) -> int:
    return thread_count(text, least=1)


def hold(
    name: str, parser: Parser, measure: Measure, arguments: Sequence[str] | None = None
) -> int:
    """Runs a benchmark from its command line. Returns its exit status."""
    signals.watch()
    try:
        options = parser.parse_args(arguments)
        complete(options)
        check_json(options.json)
        check_policies(options.policy)
        print(heading(name, options), flush=True)
        circumstances = Circumstances()
        experiments = measure(options)
        if options.json:
            write_json(
                options.json,
                circumstances,
                experiments,
                rounds=options.rounds,
                seconds=options.seconds,
                policies=options.policy,
            )
    except CommandError as error:
        clear_progress()
        print(f"bench {name}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        clear_progress()
        return 130
    return 0


def check_json(path: str | None) -> None:
    """Raises CommandError (exit code 2) if the file cannot be written."""
    if path is not None:
        json_file.check_path(path)


def heading(name: str, options: argparse.Namespace) -> str:
    """The benchmark, the machine, its load before, and the extent of the measurement."""
    return (
        f"{name}: CPython {platform.python_version()}, Linux {platform.release()}, "
        f"{len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}; "
        f"rounds: {options.rounds}, {options.seconds:g} s a cell"
    )


def write_json(
    path: str, circumstances: Circumstances, experiments: Experiments, **more: object
) -> None:
    """Writes a file of results as `headway bench` does; `more` are further metadata."""
    metadata = circumstances.to_dict(interpreters.this(), **more)
    results_file.write_kept(json_file.check_path(path), Kept(metadata, experiments))


def rounds(
    name: str, count: int, cells: Sequence[Cell], measure: Callable[[Cell], Found]
) -> Iterator[tuple[Cell, Found]]:
    """Measures every cell once a round and prints a line of progress before each."""
    total, done = count * len(cells), 0
    began = time.monotonic()
    for number in range(count):
        for cell in cells if number % 2 == 0 else reversed(cells):
            left_s = (time.monotonic() - began) / done * (total - done) if done else 0.0
            left = f", {left_s:.0f} s left" if done else ""
            text = f"{name}: round {number + 1} of {count}: {cell}"
            progress(text + left)
            yield cell, measure_undisturbed(partial(measure, cell))
            done += 1
    clear_progress()
