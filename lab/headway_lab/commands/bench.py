"""The verb `headway bench`: what is to be measured, in which order, and where results go."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from headway.errors import CommandError
from headway.options import argument, each_once
from headway.output import drawing
from headway.output.metadata import STOCK, Circumstances, Metadata, doubts
from headway.output.results import Results
from headway.programs import interpreters, signals
from headway.programs.interpreters import Interpreter
from headway.programs.progress import clear_progress, progress
from headway.report.terminal import Style
from headway_lab import replay
from headway_lab.experiment import Choice, Experiment
from headway_lab.measured import EXPERIMENTS
from headway_lab.options import DURATION, VALUE_COUNT, add_row_options, named
from headway_lab.outputs import Outputs
from headway_lab.rounds import Length, Rounds
from headway_lab.setting import check_policies
from headway_lab.statements import draw_reasons, draw_statement

DEFAULT_POLICIES = (STOCK, "priority", "deadline")
# The fewest whose confidence interval covers 95 %.
DEFAULT_VALUES = 6
QUICK_S = 60.0

DESCRIPTION = """\
Measures how the GIL slows threads down and what Headway's policies change, and prints published
figures next to the measured ones. New processes measure each value. A round measures every row of
an experiment once, so that other load on the machine affects all rows alike. Tables show medians.
An exclamation mark marks a row whose confidence interval is wide (95 %, from 6 values on). Figures
in parentheses are published ones.

experiments:
"""
EPILOG = """\
examples:
  headway bench echo                     the convoy, by switch interval and CPU-bound threads
  headway bench echo countdown --quick   two experiments in a minute
  headway bench --json FILE --html PAGE  all experiments; takes hours
  headway bench --from FILE --html PAGE  a page from the results in FILE
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    listed = "\n".join(f"  {each.name:<12} {each.summary}" for each in EXPERIMENTS.values())
    parser.description = DESCRIPTION + listed
    parser.epilog = EPILOG
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="an experiment (default: all experiments)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="measure fewer rows for a shorter time: one or two experiments take a minute, all "
        "take three",
    )
    add_row_options(
        parser,
        f"a policy of Headway, or {STOCK}: python without Headway (in wsgi: the policy interval, "
        "which measures CPython's own rule); may be given several times (default: "
        + ", ".join(DEFAULT_POLICIES)
        + ")",
        "where the work runs; interpreters have a GIL of their own; may be given several times "
        "(default: all modes of the experiment)",
    )
    parser.add_argument(
        "--server",
        choices=("headway", "mod_wsgi"),
        default="headway",
        help="wsgi: the server; mod_wsgi runs in an Apache of its own (default: headway)",
    )
    parser.add_argument(
        "--values",
        type=argument(VALUE_COUNT),
        metavar="N",
        help=f"how many values a row gets (default: {DEFAULT_VALUES}; with --quick, "
        "as many as there is time for)",
    )
    parser.add_argument(
        "--seconds",
        type=argument(DURATION),
        metavar="S",
        help="for how many seconds one value is measured",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        help=f"the interpreter to measure; policies other than {STOCK} need Headway installed in "
        "it (default: the one that runs headway)",
    )
    parser.add_argument(
        "--free-threaded",
        metavar="PATH",
        help="a free-threaded interpreter for the rows without a GIL (default: that of --python, "
        "if it is free-threaded)",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the results to FILE as JSON, after each experiment; with - the JSON goes "
        "to stdout, and the text to stderr",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the results to FILE as an HTML page with charts; - is stdout",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="measure nothing: show the results in FILE, which --json wrote; - is stdin",
    )


def run(options: argparse.Namespace) -> int:
    if options.source is not None:
        return show(options)
    experiments = [named(name, EXPERIMENTS, "NAME") for name in dict.fromkeys(options.names)]
    experiments = experiments or list(EXPERIMENTS.values())
    choice = choose(options)
    for experiment in experiments:
        check_heeded(experiment, options)
    outputs = Outputs(json=options.json, html=options.html)
    if options.workload:
        experiments = with_workloads(experiments, choice, bool(options.names))
    lengths = Length(
        options.values or (None if options.quick else DEFAULT_VALUES),
        QUICK_S / len(experiments) if options.quick else None,
    )
    # A choice that is impossible is refused before the first measurement.
    planned = [Rounds(each, known_to(each, choice), lengths, progress) for each in experiments]
    return measure(planned, experiments, choice, outputs)


def with_workloads(
    experiments: list[Experiment], choice: Choice, by_name: bool
) -> list[Experiment]:
    """Those that have some of the chosen workloads; each of them that was named has to have all,
    and each workload has to be somebody's."""
    known = {name: name for each in experiments for name in each.known_workloads}
    for workload in choice.workloads or ():
        named(workload, known, "--workload")
        for each in experiments if by_name else ():
            named(workload, {name: name for name in each.known_workloads}, "--workload")
    return [each for each in experiments if known_to(each, choice).workloads]


def known_to(experiment: Experiment, choice: Choice) -> Choice:
    """The choice with the workloads that the experiment has."""
    if choice.workloads is None:
        return choice
    known = [each for each in choice.workloads if each in experiment.known_workloads]
    return replace(choice, workloads=tuple(known))


def show(options: argparse.Namespace) -> int:
    """Shows the results of a file without a measurement."""
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    replay.check_options(options, parser.parse_args([]))
    outputs = Outputs(html=options.html, source=options.source)
    metadata, shown = replay.read(options.source, options.names)
    outputs.say(replay.heading(metadata))
    for experiment, results in shown:
        outputs.say(*report(experiment, results, outputs.style))
    outputs.write(metadata, shown)
    outputs.say(*doubts_of(metadata))
    return 0


def choose(options: argparse.Namespace) -> Choice:
    """Raises CommandError (exit code 2) for what cannot be chosen."""
    interpreter = interpreters.chosen(options.python)
    free_threaded = interpreter if interpreter.free_threading else None
    if options.free_threaded is not None:
        free_threaded = interpreters.examine(options.free_threaded, "--free-threaded")
        if not free_threaded.free_threading:
            raise CommandError(
                f"--free-threaded {options.free_threaded}: CPython {free_threaded.version} there "
                "has a GIL; a free-threaded build is needed",
                exit_code=2,
            )
    policies = policies_for(interpreter, each_once(options.policy))
    return Choice(
        interpreter=interpreter,
        free_threaded=free_threaded,
        policies=policies,
        switch_intervals_s=each_once(options.switch_interval),
        threads=each_once(options.threads),
        workloads=each_once(options.workload),
        modes=each_once(options.mode),
        shapes=each_once(options.shape),
        server=options.server,
        seconds=options.seconds,
        quick=options.quick,
    )


def policies_for(
    interpreter: interpreters.Interpreter, asked: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """The chosen policies, or the default; only stock if the interpreter has no Headway of its own.
    Raises CommandError (exit code 2) for a policy that its Headway does not know."""
    if not interpreter.headway:
        if asked and asked != (STOCK,):
            raise CommandError(
                f"--policy {asked[-1]}: Headway is not installed in {interpreter.path}; allowed "
                f"without it: --policy {STOCK}",
                exit_code=2,
            )
        return (STOCK,)
    policies = asked or DEFAULT_POLICIES
    check_policies([policy for policy in policies if policy != STOCK], interpreter.path)
    return policies


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
    planned: list[Rounds], experiments: list[Experiment], choice: Choice, outputs: Outputs
) -> int:
    """However it ends: what was measured until then is shown and kept."""
    signals.watch()
    circumstances = Circumstances()
    shown: list[tuple[Experiment, Results]] = []

    def metadata() -> Metadata:
        beside = other_interpreter(choice)
        return circumstances.to_dict(
            choice.interpreter,
            beside=beside and beside.name,
            policies=list(choice.policies),
            quick=choice.quick,
        )

    exit_code = 0
    try:
        outputs.say(heading(choice))
        for experiment, rounds in zip(experiments, planned, strict=True):
            shown.append((experiment, rounds.results))
            try:
                rounds.run()
            finally:
                with signals.held():
                    clear_progress()
                    outputs.secure(metadata(), shown)
                    outputs.say(*report(experiment, rounds.results, outputs.style))
    except KeyboardInterrupt:
        exit_code = 130
    except SystemExit as ended:
        exit_code = int(ended.code or 0)
    finally:
        with signals.held():
            outputs.write(metadata(), shown)
    if exit_code:
        print("Interrupted: these are the results until then.", file=sys.stderr)
    outputs.say(*doubts_of(metadata()))
    failed = any(result.failures for _, results in shown for result in results)
    return exit_code or int(failed)


def other_interpreter(choice: Choice) -> Interpreter | None:
    """That of the rows without a GIL, if it is one of its own."""
    return None if choice.free_threaded == choice.interpreter else choice.free_threaded


def heading(choice: Choice) -> str:
    beside = other_interpreter(choice)
    names = [choice.interpreter.name, *([beside.name] if beside else [])]
    return f"CPython {' and '.join(names)}; policies: {', '.join(choice.policies)}"


def report(experiment: Experiment, results: Results, style: Style) -> list[str]:
    """An experiment as the terminal shows it, line by line."""
    tables, marks = experiment.tables(results), drawing.mark_reasons(results)
    title = style.bold(f"== {experiment.name}: {experiment.summary} ==")
    lines = ["", title, *drawing.wrap(experiment.shows, style), ""]
    drawn = [drawing.draw(table, style, marks) for table in tables]
    for text in drawn:
        lines += [text, ""]
    fewest = min((len(each.values) for each in results if len(each.values) > 1), default=0)
    signs = drawing.legend(tables, drawn, style, fewest=fewest)
    notes = [*signs, *draw_reasons(results, marks)]
    lines += [*notes, ""] if notes else []
    for statement in experiment.statements(results):
        lines += draw_statement(statement, style)
    return lines


def doubts_of(metadata: Metadata) -> list[str]:
    """A line for each reason to doubt the results."""
    return [f"doubtful: {doubt}" for doubt in doubts(metadata)]
