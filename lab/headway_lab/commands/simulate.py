"""The verb `headway simulate`: what is to be simulated, and where results go.

An experiment is simulated by `experiments`; its results are shown, kept and compared by what
`headway bench` has for its own. Whatever else the verb does instead of experiments is a function
with a module of its own that `run` hands over to.

Nothing on stdout depends on anything but the options and the calibration: no clock, no path.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from headway import __version__
from headway.errors import CommandError
from headway.options import Whole, argument, each_once
from headway.output.metadata import STOCK, Metadata
from headway.output.results import Results
from headway.programs import signals
from headway.programs.interpreters import Interpreter
from headway.programs.progress import clear_progress, progress
from headway_lab.commands import bench as bench
from headway_lab.commands import simulate_recording
from headway_lab.experiment import Choice, Experiment
from headway_lab.options import DURATION, VALUE_COUNT, add_row_options, named
from headway_lab.outputs import Outputs
from headway_lab.simulated import calibrate, calibration, timeline_file
from headway_lab.simulated.costs import Costs
from headway_lab.simulated.machine import Machine
from headway_lab.simulated.models import SIMULATED
from headway_lab.simulated.models.experiment import Conditions, Simulated
from headway_lab.simulated.rounds import Rounds

POLICIES = (STOCK, "interval", "ticks", "requests", "beazley", "priority", "deadline")
DEFAULT_POLICIES = (STOCK, "priority", "deadline")
# The fewest whose confidence interval covers 95 %.
DEFAULT_VALUES = 6
DEFAULT_SEED = 1
MOST_CORES = 64
LARGEST_SEED = 2**32 - 1
# A simulated CPython can do without a GIL, and can have several.
INTERPRETER = Interpreter(
    path="",
    version="3.13",
    build="",
    free_threading=False,
    debug=False,
    compiler="",
    options="",
    headway=__version__,
)

DESCRIPTION = """\
Simulates threads that share a GIL, in virtual time: experiments of `headway bench`, with the same
rows and tables, on any number of cores, under Headway's policies and under former and proposed
rules of CPython. The values of a row come from consecutive seeds. The same options give the same
results, whatever else this machine does.

policies:
  stock, interval  CPython since 3.2: a waiting thread requests the GIL after a switch interval
  ticks            CPython before 3.2: a thread drops the GIL for a moment after every 100 ticks
  requests         proposed in 2009: a thread that waits after I/O requests the GIL at once
  beazley          proposed in 2010: threads that drop the GIL by themselves go first
  priority         Headway: I/O-bound threads first, at once
  deadline         Headway: virtual deadlines, the earliest first

experiments:
"""
EPILOG = """\
examples:
  headway simulate echo        the convoy, by switch interval and CPU-bound threads
  headway simulate echo --policy ticks --policy stock
  headway simulate wsgi --cores 16 --shape 4x8
  headway simulate --from store.sqlite --switch-interval 0.002 --policy deadline
  headway simulate echo --timeline convoy.svg --threads 2
  headway bench echo --json real.json; headway simulate echo --json simulated.json
  headway bench-compare real.json simulated.json
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    listed = "\n".join(
        f"  {name:<12} {each.experiment.summary}" for name, each in SIMULATED.items()
    )
    parser.description = DESCRIPTION + listed
    parser.epilog = EPILOG
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="an experiment (default: all experiments)"
    )
    add_row_options(
        parser,
        "see above; may be given several times (default: " + ", ".join(DEFAULT_POLICIES) + ")",
        "echo: where the work runs; interpreters have a GIL of their own; may be given several "
        "times (default: all)",
    )
    parser.add_argument(
        "--cores",
        type=argument(Whole(1, MOST_CORES)),
        metavar="N",
        help="how many cores the simulated machine has (default: that of the calibration, or "
        f"{Machine.cores})",
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="simulate the machine that FILE was measured on (default: Headway's own constants, "
        "from one machine)",
    )
    parser.add_argument(
        "--calibrate",
        metavar="FILE",
        help="simulate nothing: measure for half a minute how long switches, wake-ups, the GIL "
        "and system calls take on this machine, which should be idle otherwise, and write "
        "that to FILE for --calibration",
    )
    parser.add_argument(
        "--seed",
        type=argument(Whole(0, LARGEST_SEED)),
        default=DEFAULT_SEED,
        metavar="N",
        help="the seed of the first value of each row; each further value has the next seed "
        f"(default: {DEFAULT_SEED})",
    )
    parser.add_argument(
        "--values",
        type=argument(VALUE_COUNT),
        metavar="N",
        help="how many values a row gets; with --from, how many simulations make a prediction "
        f"(default: {DEFAULT_VALUES})",
    )
    parser.add_argument(
        "--from",
        dest="from_",
        metavar="FILE",
        help="instead of an experiment, predict the effect of --policy, --switch-interval, "
        "--shape and --cores on a recorded service or program. FILE is a store of `headway "
        "telemetry`, or a report of `headway run --json`",
    )
    parser.add_argument(
        "--seconds",
        type=argument(DURATION),
        metavar="S",
        help="how many seconds of virtual time one value covers (default: as many as `headway "
        "bench` measures)",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the results to FILE as JSON, as `headway bench` does; with - the JSON "
        "goes to stdout, and the text to stderr",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the results to FILE as an HTML page with charts; - is stdout",
    )
    parser.add_argument(
        "--timeline",
        metavar="FILE",
        help="instead of tables, draw one row of one experiment over time: which thread holds the "
        "GIL, which threads wait for it and request it. FILE is a drawing (.svg), a trace "
        "for Perfetto and Chrome (.json), or - for this terminal. Options choose the row "
        "(default: the best-known row of the experiment)",
    )


def run(options: argparse.Namespace) -> int:
    if options.calibrate is not None:
        check_alone(options)
        return calibrate.run(options.calibrate)
    if options.from_ is not None:
        machine, costs = constants_of(options)
        return simulate_recording.run(options, machine, costs)
    names = list(dict.fromkeys(options.names))
    chosen = [named(name, SIMULATED, "NAME") for name in names] or list(SIMULATED.values())
    choice = choose(options)
    for each in chosen if names else ():
        check_heeded(each.experiment, options)
    conditions = conditions_of(options)
    if options.timeline is not None:
        return draw(chosen, choice, conditions, options)
    outputs = Outputs(json=options.json, html=options.html)
    if options.workload:
        kept = bench.with_workloads([each.experiment for each in chosen], choice, bool(names))
        chosen = [SIMULATED[each.name] for each in kept]
    # A choice that is impossible is refused before the first simulation.
    planned = [
        Rounds(each, bench.known_to(each.experiment, choice), conditions, progress)
        for each in chosen
    ]
    return simulate(
        planned, chosen, options.values or DEFAULT_VALUES, describe(choice, conditions), outputs
    )


def draw(
    chosen: list[Simulated],
    choice: Choice,
    conditions: Conditions,
    options: argparse.Namespace,
) -> int:
    """--timeline. Raises CommandError (exit code 2) for options that it does not go with."""
    for option in ("values", "json", "html"):
        if getattr(options, option) is not None:
            raise CommandError(
                f"--{option}: not allowed with --timeline, which shows one row and has no results",
                exit_code=2,
            )
    if len(chosen) != 1:
        known = ", ".join(SIMULATED)
        raise CommandError(
            f"--timeline: found {len(chosen)} experiments; allowed: one of {known}", exit_code=2
        )
    file = timeline_file.TimelineFile(options.timeline)
    (simulated,) = chosen
    outputs = Outputs()
    drawn = timeline_file.simulate(simulated, choice, conditions)
    outputs.say(file.write(drawn, outputs.style))
    return 0


def choose(options: argparse.Namespace) -> Choice:
    """Raises CommandError (exit code 2) for a policy that there is not."""
    for policy in options.policy or ():
        named(policy, dict.fromkeys(POLICIES), "--policy")
    return Choice(
        interpreter=INTERPRETER,
        free_threaded=INTERPRETER._replace(free_threading=True),
        policies=each_once(options.policy) or DEFAULT_POLICIES,
        switch_intervals_s=each_once(options.switch_interval),
        threads=each_once(options.threads),
        workloads=each_once(options.workload),
        modes=each_once(options.mode),
        shapes=each_once(options.shape),
        seconds=options.seconds,
    )


def check_heeded(experiment: Experiment, options: argparse.Namespace) -> None:
    """An option that would change nothing is refused."""
    choosing = ("policy", "switch-interval", "threads", "workload", "mode", "shape")
    for option in choosing:
        if getattr(options, option.replace("-", "_")) and option not in experiment.heeds:
            heeded = ", ".join(f"--{each}" for each in choosing if each in experiment.heeds)
            raise CommandError(
                f"--{option}: {experiment.name} has none; it has {heeded}", exit_code=2
            )


def check_alone(options: argparse.Namespace) -> None:
    """--calibrate goes with nothing else that would have to be heeded."""
    given = [f"NAME {name}" for name in options.names]
    for option in (
        "policy",
        "switch-interval",
        "threads",
        "cores",
        "workload",
        "mode",
        "shape",
        "values",
        "seconds",
        "calibration",
        "json",
        "html",
        "timeline",
        "from_",
    ):
        if getattr(options, option.replace("-", "_"), None) is not None:
            given.append(f"--{option.rstrip('_')}")
    if given:
        raise CommandError(
            f"--calibrate: found {given[0]} beside it; allowed: no other option, because it "
            "simulates nothing",
            exit_code=2,
        )


def constants_of(options: argparse.Namespace) -> tuple[Machine, Costs]:
    if options.calibration is None:
        return Machine(), Costs()
    found = calibration.read(options.calibration)
    return found.machine, found.costs


def conditions_of(options: argparse.Namespace) -> Conditions:
    machine, costs = constants_of(options)
    if options.cores is not None:
        machine = replace(machine, cores=options.cores)
    return Conditions(machine, costs, options.seed)


def describe(choice: Choice, conditions: Conditions) -> Metadata:
    """The results' `metadata`: all that they depend on, but for the choice of rows."""
    machine = vars(conditions.machine)
    return {
        "headway": __version__,
        "cpus": conditions.machine.cores,
        "policies": list(choice.policies),
        "simulated": {
            "seed": conditions.seed,
            "machine": machine,
            "costs": conditions.costs.to_dict(),
        },
    }


def simulate(
    planned: list[Rounds],
    chosen: list[Simulated],
    values: int,
    metadata: Metadata,
    outputs: Outputs,
) -> int:
    """However it ends: what there is by then is shown and kept."""
    signals.watch()
    shown: list[tuple[Experiment, Results]] = []
    exit_code = 0
    try:
        outputs.say(heading(metadata))
        for each, rounds in zip(chosen, planned, strict=True):
            shown.append((each.experiment, rounds.results))
            try:
                rounds.run(values)
            finally:
                with signals.held():
                    clear_progress()
                    outputs.say(*bench.report(each.experiment, rounds.results, outputs.style))
    except KeyboardInterrupt:
        exit_code = 130
    except SystemExit as ended:
        exit_code = int(ended.code or 0)
    finally:
        with signals.held():
            outputs.write(metadata, shown)
    if exit_code:
        print("Interrupted: these are the results until then.", file=sys.stderr)
    failed = any(result.failures for _, results in shown for result in results)
    return exit_code or int(failed)


def heading(metadata: Metadata) -> str:
    cores = metadata["cpus"]
    return (
        f"Simulated: {cores} {'core' if cores == 1 else 'cores'}, "
        f"seed {metadata['simulated']['seed']}; policies: {', '.join(metadata['policies'])}"
    )
