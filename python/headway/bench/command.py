"""The verb `headway bench`: what is to be measured, in which order, and where results go."""

from __future__ import annotations

import argparse
import functools
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from headway import json_file
from headway.bench import drawing, interpreters, results_file, review
from headway.bench.experiment import MODES, STOCK, Choice, Experiment
from headway.bench.experiments import EXPERIMENTS
from headway.bench.interpreters import Interpreter
from headway.bench.metadata import Circumstances, doubts
from headway.bench.options import (
    at_least_one,
    interval_s,
    named,
    seconds,
    shape,
    thread_count,
)
from headway.bench.processes import check_policies
from headway.bench.progress import clear_progress, progress
from headway.bench.results import Results
from headway.bench.rounds import Length, Rounds, watch_stops
from headway.errors import CommandError
from headway.terminal import Style

# Takes the metadata, and what was shown.
PageWriter = Callable[[dict[str, Any], list[tuple[Experiment, Results]]], None]

DEFAULT_POLICIES = (STOCK, "priority", "deadline")
DEFAULT_VALUES = 5
QUICK_S = 60.0

DESCRIPTION = """\
Measures what the GIL does to threads and what Headway does about it, and lays beside what others
published. Each value is measured by processes of its own; all rows of an experiment are measured in
every round, so that what else the machine does hits all alike. Tables show medians; a ! marks a row
whose 95 % confidence interval is wide, and figures in parentheses are the published ones.

experiments:
"""
EPILOG = """\
examples:
  headway bench echo                     the convoy, by switch interval and CPU-bound threads
  headway bench echo countdown --quick   a minute for all that is named
  headway bench --json FILE --html PAGE  everything; hours
  headway bench --from FILE --html PAGE  a page from results that were kept
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    listed = "\n".join(f"  {each.name:<12} {each.summary}" for each in EXPERIMENTS.values())
    parser.description = DESCRIPTION + listed
    parser.epilog = EPILOG
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="an experiment; without one: all of them",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="about a minute in all: fewer rows, shorter values",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="P",
        help=f"{STOCK} (plain python; of wsgi: interval, which watches CPython's own rule) or a "
        "policy of Headway; may be given again (default: " + ", ".join(DEFAULT_POLICIES) + ")",
    )
    parser.add_argument(
        "--switch-interval",
        action="append",
        type=interval_s,
        metavar="S",
        help="in seconds; may be given again (default: the experiment's own)",
    )
    parser.add_argument(
        "--threads",
        action="append",
        type=thread_count,
        metavar="N",
        help="how many threads compute; may be given again (default: the experiment's own)",
    )
    parser.add_argument(
        "--workload",
        action="append",
        metavar="W",
        help="of the experiments that have several; may be given again (default: all)",
    )
    parser.add_argument(
        "--mode",
        action="append",
        choices=MODES,
        help="where work runs; interpreters are such with a GIL of their own; may be given again "
        "(default: all that the experiment has)",
    )
    parser.add_argument(
        "--shape",
        action="append",
        type=shape,
        metavar="PxT",
        help="wsgi: processes x threads; may be given again (default: 10x1, 2x5, 1x10)",
    )
    parser.add_argument(
        "--server",
        choices=("headway", "mod_wsgi"),
        default="headway",
        help="wsgi: what serves; mod_wsgi runs in an Apache of its own (default: headway)",
    )
    parser.add_argument(
        "--values",
        type=at_least_one,
        metavar="N",
        help=f"how many values a row gets (default: {DEFAULT_VALUES}; with --quick, "
        "as many as there is time for)",
    )
    parser.add_argument(
        "--seconds", type=seconds, metavar="S", help="how long one value is measured"
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="the interpreter to measure; with a Headway of its own for policies other than "
        f"{STOCK} (default: the one that runs this)",
    )
    parser.add_argument(
        "--free-threaded",
        metavar="PATH",
        help="a free-threaded interpreter for the rows without a GIL (default: --python's, if it "
        "is one)",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--html", metavar="FILE", help="also make a page of them, with charts")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="measure nothing: show the results that --json wrote",
    )


def run(options: argparse.Namespace) -> int:
    if options.source is not None:
        return show(options)
    experiments = [named(name, EXPERIMENTS, "NAME") for name in dict.fromkeys(options.names)]
    experiments = experiments or list(EXPERIMENTS.values())
    choice = choose(options)
    for experiment in experiments:
        check_heeded(experiment, options)
    json_path = None if options.json is None else json_file.check_path(options.json)
    write_page = None if options.html is None else page_writer(options.html)
    lengths = Length(
        options.values or (None if options.quick else DEFAULT_VALUES),
        QUICK_S / len(experiments) if options.quick else None,
    )
    # What cannot be is refused before anything is measured.
    planned = [Rounds(each, choice, lengths, progress) for each in experiments]
    return measure(planned, experiments, choice, json_path, write_page)


def page_writer(file: str) -> PageWriter:
    """What makes the page in the end. Raises CommandError (exit code 2) for a page that cannot be
    written, and where matplotlib is missing: nobody else needs it."""
    from headway.bench import page

    return functools.partial(page.write, json_file.check_path(file, "--html"))


def show(options: argparse.Namespace) -> int:
    """What a file has, without a measurement."""
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    review.check_options(options, parser.parse_args([]))
    metadata, shown = review.read(options.source, options.names)
    write_page = None if options.html is None else page_writer(options.html)
    print(review.heading(metadata))
    for experiment, results in shown:
        print(*report(experiment, results), sep="\n")
    if write_page is not None:
        write_page(metadata, shown)
    tell_doubts(metadata)
    return 0


def choose(options: argparse.Namespace) -> Choice:
    """Raises CommandError (exit code 2) for what cannot be chosen."""
    interpreter = interpreters.examine(options.python) if options.python else interpreters.this()
    free_threaded = interpreter if interpreter.free_threading else None
    if options.free_threaded:
        free_threaded = interpreters.examine(options.free_threaded, "--free-threaded")
        if not free_threaded.free_threading:
            raise CommandError(
                f"--free-threaded {options.free_threaded}: CPython {free_threaded.version} there "
                "has a GIL; a free-threaded build is needed",
                exit_code=2,
            )
    policies = policies_for(interpreter, _tuple(options.policy))
    return Choice(
        interpreter=interpreter,
        free_threaded=free_threaded,
        policies=policies,
        switch_intervals_s=_tuple(options.switch_interval),
        threads=_tuple(options.threads),
        workloads=_tuple(options.workload),
        modes=_tuple(options.mode),
        shapes=_tuple(options.shape),
        server=options.server,
        seconds=options.seconds,
        quick=options.quick,
    )


def policies_for(
    interpreter: interpreters.Interpreter, asked: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """What was asked for, or the default; without a Headway of the interpreter's own, its stock.
    Raises CommandError (exit code 2) for what it does not know."""
    if not interpreter.headway:
        if asked and asked != (STOCK,):
            raise CommandError(
                f"--policy {asked[-1]}: {interpreter.path} has no Headway of its own; "
                f"without it there is --policy {STOCK}",
                exit_code=2,
            )
        return (STOCK,)
    policies = asked or DEFAULT_POLICIES
    check_policies([policy for policy in policies if policy != STOCK], interpreter.path)
    return policies


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    """Each once, in the order given."""
    return tuple(dict.fromkeys(values)) if values else None


def check_heeded(experiment: Experiment, options: argparse.Namespace) -> None:
    """An option that would change nothing is refused."""
    given = {
        "policy": options.policy,
        "switch-interval": options.switch_interval,
        "threads": options.threads,
        "workload": options.workload,
        "mode": options.mode,
        "shape": options.shape,
        "server": options.server != "headway",
    }
    for option, value in given.items():
        # All experiments at once take of the options what they know.
        if value and option not in experiment.heeds and options.names:
            raise CommandError(
                f"--{option}: {experiment.name} has none; it has "
                + ", ".join(f"--{each}" for each in sorted(experiment.heeds)),
                exit_code=2,
            )


def measure(
    planned: list[Rounds],
    experiments: list[Experiment],
    choice: Choice,
    json_path: str | None,
    write_page: PageWriter | None,
) -> int:
    """What was measured until an interruption is shown and kept like everything else."""
    watch_stops()
    signal.signal(signal.SIGTERM, end_at_signal)
    circumstances = Circumstances()
    print(heading(choice), flush=True)
    shown: list[tuple[Experiment, Results]] = []
    exit_code = 0
    for experiment, rounds in zip(experiments, planned, strict=True):
        try:
            rounds.run()
        except KeyboardInterrupt:
            exit_code = 130
        except SystemExit as ended:
            exit_code = int(ended.code or 0)
        finally:
            clear_progress()
        shown.append((experiment, rounds.results))
        print(*report(experiment, rounds.results), sep="\n", flush=True)
        if exit_code:
            print("Interrupted: this is what had been measured.", file=sys.stderr)
            break
    beside = other_interpreter(choice)
    metadata = circumstances.to_dict(
        choice.interpreter,
        beside=beside and beside.name,
        policies=list(choice.policies),
        quick=choice.quick,
    )
    if json_path is not None:
        results_file.write(json_path, metadata, shown)
    if write_page is not None:
        write_page(metadata, shown)
    tell_doubts(metadata)
    failed = any(result.failures for _, results in shown for result in results)
    return exit_code or int(failed)


def other_interpreter(choice: Choice) -> Interpreter | None:
    """That of the rows without a GIL, if it is one of its own."""
    return None if choice.free_threaded == choice.interpreter else choice.free_threaded


def heading(choice: Choice) -> str:
    beside = other_interpreter(choice)
    names = [choice.interpreter.name, *([beside.name] if beside else [])]
    return f"CPython {' and '.join(names)}; policies: {', '.join(choice.policies)}"


def report(experiment: Experiment, results: Results) -> list[str]:
    """An experiment as the terminal shows it, line by line."""
    style = Style.of_stream(1, sys.stdout.encoding or "ascii")
    tables, marks = experiment.tables(results), drawing.mark_reasons(results)
    title = style.bold(f"== {experiment.name}: {experiment.summary} ==")
    lines = ["", title, *drawing.wrap(experiment.shows, style), ""]
    drawn = [drawing.draw(table, style, marks) for table in tables]
    for text in drawn:
        lines += [text, ""]
    notes = [*drawing.legend(tables, drawn, style), *drawing.draw_reasons(results, marks)]
    lines += [*notes, ""] if notes else []
    for statement in experiment.statements(results):
        lines += drawing.draw_statement(statement, style)
    return lines


def tell_doubts(metadata: dict[str, Any]) -> None:
    """What makes all that was shown worth less."""
    for doubt in doubts(metadata):
        print(f"doubtful: {doubt}")


def end_at_signal(number: int, _: object) -> NoReturn:
    """Unwinds, so that what was started is ended."""
    raise SystemExit(128 + number)
