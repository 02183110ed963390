"""Own GILs and free threading: what one process of `headway serve` makes of cores and of memory.

  own_gils      one process with two interpreters, each with its own GIL, beside one interpreter and
                beside two processes: requests/s of `fixed` (3 ms of Python and 1 ms of waiting, the
                same work each time), memory also with Flask and with Django
  free_threads  1 x 10 and 2 x 5 without a GIL beside 10 x 1 with one, on `fixed`
  hello_calls   hello world called by one and two threads without a GIL, in process
  hello_sockets hello world served without a GIL, beside peers on the same build

It runs on an ordinary build from CPython 3.12 on; the last three parts need a free-threaded one
beside it. Load is wrk's, 10 connections.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import free_hello
import free_threads
import own_gils
import sitting
import wrk
from builds import FREE_THREADED, FREE_THREADED_PYTHON, THIS_BUILD, Build, free_threaded_build
from installed import FREE_THREADED_PEERS_FOLDER, Installed
from side_by_side import missing
from visits import page_loops

from headway.programs.processes import ProgramError

NAME = "server_interpreters"
OWN_GILS, FREE_THREADS = "own_gils", "free_threads"
HELLO_CALLS, HELLO_SOCKETS = "hello_calls", "hello_sockets"
PARTS = (OWN_GILS, FREE_THREADS, HELLO_CALLS, HELLO_SOCKETS)
FIXED_WORK_S = 0.003


class Others(NamedTuple):
    """The free-threaded build, and which peers there are for it."""

    build: Build
    installed: Installed


def check_this_build(options: argparse.Namespace) -> None:
    """Raises ProgramError if `own_gils` cannot run on this Python."""
    if sys.version_info < (3, 12):
        raise ProgramError(f"interpreters have own GILs from 3.12 on: {THIS_BUILD.version}", 2)
    for application in options.application:
        if application != "pages" and importlib.util.find_spec(application) is None:
            raise ProgramError(
                f"{sys.executable} has no {application}: install bench/requirements.txt", 2
            )


def others(options: argparse.Namespace) -> Others:
    """Raises ProgramError if they are not there."""
    build = free_threaded_build(options.free_threaded_python)
    print(f"free-threaded: CPython {build.version}, {build.python}")
    names = list(dict.fromkeys(options.peer)) if HELLO_SOCKETS in options.part else []
    return Others(build, Installed(names, options.free_threaded_peers_folder, build))


def measure_part(
    part: str, found: Others | None, fixed_loops: int, options: argparse.Namespace
) -> sitting.Experiments:
    print(f"\n{part}", flush=True)
    if found is None:
        return own_gils.measure(NAME, fixed_loops, options)
    if part == FREE_THREADS:
        return free_threads.measure(NAME, found.build, fixed_loops, options)
    if part == HELLO_CALLS:
        return free_hello.measure_calls(NAME, found.build, options)
    print(found.installed)
    return free_hello.measure_sockets(NAME, found.build, found.installed, options)


def measure(options: argparse.Namespace) -> sitting.Experiments:
    if FREE_THREADED:
        raise ProgramError(
            f"{sys.executable} is a free-threaded build of CPython: run it with an ordinary one, "
            "and name this in --free-threaded-python",
            2,
        )
    wanted_all = options.part is None
    options.part = list(dict.fromkeys(options.part or PARTS))
    wrk.check()
    able: dict[str, Others | None] = {}
    absent: dict[str, str] = {}
    for part in options.part:
        try:
            if part == OWN_GILS:
                check_this_build(options)
                able[part] = None
            else:
                able[part] = next(filter(None, able.values()), None) or others(options)
        except ProgramError as error:
            # Parts that were asked for by name are to run.
            if not wanted_all:
                raise
            absent[part] = str(error)
            print(f"without {part}: {error}")
    # Once, on the ordinary build: both do the same work for a request.
    loops = page_loops(FIXED_WORK_S) if {OWN_GILS, FREE_THREADS} & able.keys() else 0
    experiments = []
    for part, found in able.items():
        experiments += measure_part(part, found, loops, options)
    return [*experiments, missing(NAME, absent)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=7, seconds=4.0, quick_seconds=1.0, policies=())
    parser.add_argument(
        "--part",
        nargs="+",
        choices=PARTS,
        help="which parts (default: all that can run here; the others are named)",
    )
    parser.add_argument(
        "--application",
        nargs="+",
        choices=own_gils.APPLICATIONS,
        default=own_gils.APPLICATIONS,
        help="what own_gils serves (default: all)",
    )
    parser.add_argument(
        "--free-threaded-python",
        type=Path,
        default=FREE_THREADED_PYTHON,
        metavar="PATH",
        help="the interpreter of a free-threaded virtual environment with Headway in it "
        "(default: .venvs/3.13t/bin/python)",
    )
    parser.add_argument(
        "--peer",
        nargs="*",
        choices=free_hello.PEERS,
        default=free_hello.PEERS,
        metavar="NAME",
        help="which peers beside Headway in hello_sockets, or none: "
        f"{', '.join(free_hello.PEERS)} (default: all)",
    )
    parser.add_argument(
        "--free-threaded-peers-folder",
        type=Path,
        default=FREE_THREADED_PEERS_FOLDER,
        metavar="DIR",
        help="their environment, made by bench/install_peers.py when that Python runs it "
        "(default: .venvs/peers-free-threaded)",
    )
    return sitting.hold(NAME, parser, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
