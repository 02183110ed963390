"""The form `headway tune serve APP`: an application with servers and a load of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import product

from headway.commands.tune_options import chosen_candidates, conduct, make_trials
from headway.commands.tune_server import (
    Planned,
    add_server_options,
    experiment,
    plan,
    winner_of,
)
from headway.errors import CommandError
from headway.options import Bytes, Whole, argument, each_once
from headway.programs.progress import clear_progress, progress
from headway.server.config.options import OPTIONS
from headway.tune import load
from headway.tune.connection import Connection, Opened
from headway.tune.fragment import toml_fragment
from headway.tune.goals import MEMORY, OF_SERVER
from headway.tune.served import Served, serving
from headway.tune.server import Server
from headway.tune.setting import Setting, Shape
from headway.tune.standby import Budget, Standby

HOST = "127.0.0.1"
DEFAULT_RATE = 100
DEFAULT_CONNECTIONS = 64
MAX_CORES = 10_000
SHAPE_OPTIONS = tuple(f"--{name}" for name in Shape._fields)

DESCRIPTION = """\
Starts `headway serve APP` and a load, and tunes that. The load is an open loop: a request is sent
when it is due, whatever the server does, and its latency counts from then. What follows -- goes to
`headway serve`, and is the present setting.

--processes, --threads and --interpreters name further values of these options of the server. Every
combination is a candidate, within --cores and --memory, and has a server of its own, which runs
until the experiment ends. The policy and the switch interval are then varied only if they are
named, and memory is a figure for --goal as well.
"""
EXAMPLES = """\
examples:
  headway tune serve shop:app --load '/product/1 10' '/recommendations/1 0.2'
  headway tune serve shop:app --load access.log --rate 50 -- --threads 8
  headway tune serve shop:app --load / --processes 1 --processes 2 --threads 4 --threads 16
"""


def prepare_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.usage = "headway tune serve APP --load FILE|PATH... [OPTION...] [-- SERVE OPTION...]"
    parser.add_argument("application", metavar="APP", help="as `headway serve` takes it")
    parser.add_argument(
        "--load",
        metavar="FILE|PATH",
        nargs="+",
        required=True,
        help="paths with optional weights, as '/product/1 10', files of such lines, and access "
        "logs, whose GET requests are drawn by their frequency",
    )
    parser.add_argument(
        "--rate",
        metavar="N",
        type=argument(Whole(1, 100_000)),
        default=DEFAULT_RATE,
        help="requests a second (default: %(default)s)",
    )
    parser.add_argument(
        "--connections",
        metavar="N",
        type=argument(Whole(1, 500)),
        default=DEFAULT_CONNECTIONS,
        help="the most requests under way; others wait (default: %(default)s)",
    )
    for name, what in (
        ("processes", "a number of processes"),
        ("threads", "a number of threads of each process"),
        ("interpreters", "a number of interpreters of each process"),
    ):
        parser.add_argument(
            f"--{name}",
            action="append",
            metavar="N",
            type=argument(OPTIONS[name].kind),
            help=f"{what} to try; may be given several times (default: the present one)",
        )
    parser.add_argument(
        "--cores",
        metavar="N",
        type=argument(Whole(1, MAX_CORES)),
        help="try no candidate that can use more cores: one for each process, or for each "
        "interpreter with a GIL of its own (default: any number)",
    )
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=argument(Bytes(1)),
        help="try no candidate whose processes use more memory, such as 512M (default: any)",
    )
    add_server_options(parser)


def run(options: argparse.Namespace) -> int:
    shapes = read_shapes(options)
    planned = plan(options, (*OF_SERVER, MEMORY) if shapes else OF_SERVER)
    targets = load.read_targets(options.load)
    if options.path is not None and options.path not in targets:
        raise CommandError(f"--path: {options.path!r} is not in --load", exit_code=2)
    words = [options.application, *options.program]
    with ExitStack() as stack:
        served = stack.enter_context(serving(words))
        for error in load.errors_of(HOST, served.port, targets):
            print(f"headway tune: warning: --load: {error}", file=sys.stderr)
        if shapes:
            return tune_shapes(options, planned, targets, words, served, shapes)
        running = stack.enter_context(
            load.running(HOST, served.port, options.rate, options.connections, targets)
        )
        connection = stack.enter_context(closing(Connection(served.address, None)))
        server = Server(connection, planned.timing, options.path, running)
        exit_code, winner = experiment(options, planned, connection, server)
        if winner is not None:
            print(toml_fragment(connection.opened["group"], winner))
    return exit_code


def read_shapes(options: argparse.Namespace) -> list[Shape]:
    """Every combination of the numbers that are given; empty if none is. Raises CommandError (exit
    code 2)."""
    named = [each_once(getattr(options, name)) for name in Shape._fields]
    if any(named):
        return [Shape(*each) for each in product(*(each or (None,) for each in named))]
    for name in ("cores", "memory"):
        if getattr(options, name) is not None:
            raise CommandError(
                f"--{name}: it limits what {', '.join(SHAPE_OPTIONS)} vary, and none is given", 2
            )
    return []


def present_shape(opened: Opened, candidate: Shape) -> Shape:
    """The shape of a server, with the numbers that a candidate has."""
    present = Shape(opened["processes"], opened["threads"], opened["interpreters"])
    left_out = {name: None for name in Shape._fields if name not in candidate.varied()}
    return present._replace(**left_out)


def tune_shapes(
    options: argparse.Namespace,
    planned: Planned,
    targets: Mapping[str, float],
    words: Sequence[str],
    served: Served,
    shapes: Sequence[Shape],
) -> int:
    """Tunes servers of several shapes. `served` is the server with the present one."""
    with closing(Connection(served.address, None)) as connection:
        opened = connection.opened
        control = connection.present._replace(shape=present_shape(opened, shapes[0]))
        chosen = chosen_candidates(options, control, shapes)
        connection.check(chosen)
    standby = Standby(
        opened,
        Budget(options.cores, options.memory),
        planned.timing,
        options.path,
        partial(starting, words, targets),
        lambda port: load.running(HOST, port, options.rate, options.connections, targets),
    )
    with standby:
        standby.add_control(control.shape, served)
        chosen = start_all(standby, chosen)
        trials = make_trials(
            options,
            control,
            chosen,
            planned.goal,
            planned.figures,
            standby.measure,
            standby.excluded,
        )
        exit_code, winner = conduct(trials, planned.files), winner_of(trials)
    if winner is not None:
        print(toml_fragment(opened["group"], winner))
    return exit_code


def start_all(standby: Standby, chosen: Sequence[Setting]) -> list[Setting]:
    """Starts the servers of the candidates. Returns the candidates that have one. Raises
    CommandError (exit code 2) if none has."""
    started = []
    try:
        for shape in dict.fromkeys(each.shape for each in chosen):
            if standby.add(shape):
                started.append(shape)
    finally:
        clear_progress()
    left = [each for each in chosen if each.shape in started]
    if not left:
        reasons = "; ".join(f"{each.shape}: {each.why}" for each in standby.excluded)
        raise CommandError(f"nothing to try: {reasons}", exit_code=2)
    return left


@contextmanager
def starting(words: Sequence[str], targets: Mapping[str, float], shape: Shape) -> Iterator[Served]:
    """A server of this shape that has answered every target once."""
    progress(f"starting a server with {shape}")
    options = [f"--{name}={count}" for name, count in shape.varied().items()]
    with serving([*words, *options]) as served:
        load.errors_of(HOST, served.port, targets)
        yield served
