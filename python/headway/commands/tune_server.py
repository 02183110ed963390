"""The forms `headway tune SERVER` and `headway tune serve APP`."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, closing
from typing import NamedTuple

from headway.commands.tune_options import (
    Files,
    add_common_options,
    conduct,
    files_of,
    make_trials,
    read_goal,
)
from headway.errors import CommandError
from headway.options import Seconds, Whole, argument
from headway.tune import load
from headway.tune.connection import Connection, find_address
from headway.tune.fragment import toml_fragment
from headway.tune.goals import OF_SERVER, Goal
from headway.tune.served import serving
from headway.tune.server import Server, Timing
from headway.tune.setting import Setting
from headway.tune.trials import Trials

SERVER_FOR_S = 600.0
BLOCK = Seconds(0.5, 600)
WASHOUT = Seconds(0, 60)
DEFAULT_BLOCK_S = 4.0
DEFAULT_WASHOUT_S = 0.5
DEFAULT_LIMIT = 3.0
DEFAULT_RATE = 100
DEFAULT_CONNECTIONS = 64

SERVER_DESCRIPTION = """\
Tries settings on the traffic of a server that runs, without a restart: its --status-socket
(unix:PATH), or its pid file if it has such a socket. The present setting is the control of each
round. When the experiment ends, however it ends, the server has the setting that it had before, or
with --apply the winner, which survives SIGHUP. If this command is killed or hangs, the server takes
the trial back within 4 seconds.
"""
SERVE_DESCRIPTION = """\
Starts `headway serve APP` and a load, and tunes that. The load is an open loop: a request is sent
when it is due, whatever the server does, and its latency counts from then. What follows -- goes to
`headway serve`.
"""
SERVE_EXAMPLES = """\
examples:
  headway tune serve shop:app --load '/product/1 10' '/recommendations/1 0.2'
  headway tune serve shop:app --load access.log --rate 50 -- --threads 8
"""


def prepare_server(parser: argparse.ArgumentParser) -> None:
    parser.description = SERVER_DESCRIPTION
    parser.add_argument("server", metavar="SERVER", help="unix:PATH, or the file of --pid-file")
    parser.add_argument(
        "--apply", action="store_true", help="leave the winner in force, if there is one"
    )
    parser.add_argument("--group", metavar="NAME", help="the process group, if there are several")
    add_server_options(parser)


def prepare_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = SERVE_DESCRIPTION
    parser.epilog = SERVE_EXAMPLES
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
    add_server_options(parser)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--goal",
        metavar="GOAL",
        default="p99",
        help="what decides: p99, p50, throughput or cpu (per request); floors may follow, as in "
        "'p99, throughput >= 0.95' (default: %(default)s)",
    )
    parser.add_argument(
        "--path", metavar="PATH", help="count the requests of this path only (default: all)"
    )
    parser.add_argument(
        "--block",
        metavar="S",
        type=argument(BLOCK),
        default=DEFAULT_BLOCK_S,
        help="the length of a block (default: %(default)g)",
    )
    parser.add_argument(
        "--washout",
        metavar="S",
        type=argument(WASHOUT),
        default=DEFAULT_WASHOUT_S,
        help="the time after each switch that is not counted, and the time after each block in "
        "which its requests may still be answered (default: %(default)g)",
    )
    parser.add_argument(
        "--limit",
        metavar="FACTOR",
        type=limit,
        default=DEFAULT_LIMIT,
        help="end the block of a candidate, and drop it, once its p99 or errors exceed this "
        "multiple of the highest that the present setting has shown; p95 decides below 500 "
        "requests (default: %(default)g)",
    )
    add_common_options(parser, SERVER_FOR_S)


def limit(words: str) -> float:
    try:
        value = float(words)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"found {words!r}; allowed: a number from 1 to 1000")
    return value


class Planned(NamedTuple):
    """The plan of an experiment, made before anything starts."""

    goal: Goal
    timing: Timing
    files: Files


def run(options: argparse.Namespace) -> int:
    planned = Planned(
        read_goal(options.goal, OF_SERVER),
        Timing(options.block, options.washout, options.limit),
        files_of(options),
    )
    if options.form == "server":
        return tune_running(options, planned)
    return tune_application(options, planned)


def tune_running(options: argparse.Namespace, planned: Planned) -> int:
    address = find_address(options.server)
    with closing(Connection(address, options.group)) as connection:
        server = Server(connection, planned.timing, options.path)
        exit_code, winner = experiment(options, planned, connection, server)
        if winner is None:
            return exit_code
        if options.apply:
            connection.apply(winner)
            print("Applied. It survives SIGHUP; for the next start:", file=sys.stderr)
        else:
            print("The server has its former setting. To keep the winner:", file=sys.stderr)
        print(toml_fragment(connection.opened["group"], winner))
    return exit_code


def tune_application(options: argparse.Namespace, planned: Planned) -> int:
    targets = load.read_targets(options.load)
    if options.path is not None and options.path not in targets:
        raise CommandError(f"--path: {options.path!r} is not in --load", exit_code=2)
    with ExitStack() as stack:
        served = stack.enter_context(serving([options.application, *options.program]))
        for error in load.errors_of("127.0.0.1", served.port, targets):
            print(f"headway tune: warning: --load: {error}", file=sys.stderr)
        running = stack.enter_context(
            load.running("127.0.0.1", served.port, options.rate, options.connections, targets)
        )
        connection = stack.enter_context(closing(Connection(served.address, None)))
        server = Server(connection, planned.timing, options.path, running)
        exit_code, winner = experiment(options, planned, connection, server)
        if winner is not None:
            print(toml_fragment(connection.opened["group"], winner))
    return exit_code


def experiment(
    options: argparse.Namespace, planned: Planned, connection: Connection, server: Server
) -> tuple[int, Setting | None]:
    """The exit status, and the winner if there is one."""
    trials: Trials = make_trials(
        options, connection.present, planned.goal, OF_SERVER, server.measure
    )
    exit_code = conduct(trials, planned.files)
    winner = trials.outcome().winner
    return exit_code, None if winner is None else winner.setting
