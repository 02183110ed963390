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

import free_hello
import free_threads
import own_gils
import sitting
import wrk
from builds import FREE_THREADED, FREE_THREADED_PYTHON, Build, free_threaded_build
from installed import FREE_THREADED_PEERS_FOLDER, Installed
from processes import BenchmarkError
from visits import page_loops

NAME = "server_interpreters"
OWN_GILS, FREE_THREADS = "own_gils", "free_threads"
HELLO_CALLS, HELLO_SOCKETS = "hello_calls", "hello_sockets"
PARTS = (OWN_GILS, FREE_THREADS, HELLO_CALLS, HELLO_SOCKETS)
FIXED_WORK_S = 0.003


def check(parts: Sequence[str]) -> None:
    """Raises BenchmarkError if this Python is not the one to run them."""
    version = ".".join(map(str, sys.version_info[:3]))
    if FREE_THREADED:
        raise BenchmarkError(
            f"{sys.executable} is a free-threaded build of CPython: run it with an ordinary one, "
            "and name this in --free-threaded-python",
            2,
        )
    if OWN_GILS in parts and sys.version_info < (3, 12):
        raise BenchmarkError(f"interpreters have a GIL each from 3.12 on; this is {version}", 2)
    for framework in ("flask", "django") if OWN_GILS in parts else ():
        if importlib.util.find_spec(framework) is None:
            raise BenchmarkError(
                f"{sys.executable} has no {framework}: install bench/requirements.txt", 2
            )


def measure(options: argparse.Namespace) -> sitting.Experiments:
    parts = list(dict.fromkeys(options.part))
    check(parts)
    build: Build | None = None
    installed: Installed | None = None
    if parts != [OWN_GILS]:
        build = free_threaded_build(options.free_threaded_python)
        print(f"free-threaded: CPython {build.version}, {build.python}")
    if build is not None and HELLO_SOCKETS in parts:
        names = list(dict.fromkeys(options.peer))
        installed = Installed(names, options.free_threaded_peers_folder, build)
        print(installed)
    if parts != [HELLO_CALLS]:
        wrk.check()
    # Once, on the ordinary build: both do the same work for a request.
    loops = page_loops(FIXED_WORK_S) if {OWN_GILS, FREE_THREADS} & set(parts) else 0
    experiments = []
    for part in parts:
        print(f"\n{part}", flush=True)
        if part == OWN_GILS:
            experiments += own_gils.measure(NAME, loops, options)
        if part == FREE_THREADS and build is not None:
            experiments += free_threads.measure(NAME, build, loops, options)
        if part == HELLO_CALLS and build is not None:
            experiments += free_hello.measure_calls(NAME, build, options)
        if part == HELLO_SOCKETS and build is not None and installed is not None:
            experiments += free_hello.measure_sockets(NAME, build, installed, options)
    return experiments


def main(arguments: Sequence[str] | None = None) -> int:
    parser = sitting.Parser(NAME, __doc__)
    sitting.prepare_parser(parser, rounds=7, seconds=4.0, quick_seconds=1.0, policies=())
    parser.add_argument(
        "--part", nargs="+", choices=PARTS, default=PARTS, help="which parts (default: all)"
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
