"""The form `headway tune SERVER`, and what it shares with `headway tune serve APP`."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import NamedTuple

from headway.commands.tune_options import (
    Files,
    add_common_options,
    chosen_candidates,
    conduct,
    files_of,
    make_trials,
    read_goal,
)
from headway.options import Seconds, argument
from headway.tune.connection import Connection, find_address
from headway.tune.fragment import toml_fragment
from headway.tune.goals import OF_SERVER, Figure, Goal
from headway.tune.server import Server, Timing
from headway.tune.setting import Setting
from headway.tune.trials import Trials

SERVER_FOR_S = 600.0
BLOCK = Seconds(0.5, 600)
WASHOUT = Seconds(0, 60)
DEFAULT_BLOCK_S = 4.0
DEFAULT_WASHOUT_S = 0.5
DEFAULT_LIMIT = 3.0

SERVER_DESCRIPTION = """\
Tries settings on the traffic of a server that runs, without a restart: its --status-socket
(unix:PATH), or its pid file if it has such a socket. The present setting is the control of each
round. When the experiment ends, however it ends, the server has the setting that it had before, or
with --apply the winner, which survives SIGHUP. If this command is killed or hangs, the server takes
the trial back within 4 seconds.
"""


def prepare_server(parser: argparse.ArgumentParser) -> None:
    parser.description = SERVER_DESCRIPTION
    parser.add_argument("server", metavar="SERVER", help="unix:PATH, or the file of --pid-file")
    parser.add_argument(
        "--apply", action="store_true", help="leave the winner in force, if there is one"
    )
    parser.add_argument("--group", metavar="NAME", help="the process group, if there are several")
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
        help="end the block of a candidate once its p99 or errors exceed this multiple of the "
        "highest that the present setting has shown, and drop the candidate the second time; p95 "
        "decides below 500 requests (default: %(default)g)",
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
    figures: tuple[Figure, ...]
    timing: Timing
    files: Files


def plan(options: argparse.Namespace, figures: tuple[Figure, ...]) -> Planned:
    """Raises CommandError (exit code 2)."""
    return Planned(
        read_goal(options.goal, figures),
        figures,
        Timing(options.block, options.washout, options.limit),
        files_of(options),
    )


def run(options: argparse.Namespace) -> int:
    planned = plan(options, OF_SERVER)
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


def experiment(
    options: argparse.Namespace, planned: Planned, connection: Connection, server: Server
) -> tuple[int, Setting | None]:
    """Tunes one server. The exit status, and the winner if there is one."""
    control = connection.present
    chosen = chosen_candidates(options, control)
    connection.check(chosen)
    trials = make_trials(options, control, chosen, planned.goal, planned.figures, server.measure)
    return conduct(trials, planned.files), winner_of(trials)


def winner_of(trials: Trials) -> Setting | None:
    winner = trials.outcome().winner
    return None if winner is None else winner.setting
