"""The `headway` command: finds the verb, calls its module to parse and run, and turns errors into
one line on stderr and an exit code.

A verb is a module with `prepare_parser(parser)` and `run(arguments) -> int`. A verb whose command
line ends in another program's command line also has `split_arguments(arguments)`, which splits that
part off before argparse sees it. Only the module of the verb in use is imported.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from headway.errors import CommandError, Error


class Verb(NamedTuple):
    """A word after `headway`, the module that implements it, and its line in the help."""

    name: str
    module: str
    summary: str


VERBS = (
    Verb(
        "run",
        "headway.commands.run",
        "run a Python program and report how its threads shared the GIL",
    ),
    Verb(
        "report",
        "headway.commands.report",
        "show the report of an earlier run, or the counters that a crash left",
    ),
    Verb("serve", "headway.commands.serve", "serve WSGI applications"),
    Verb(
        "audit",
        "headway.commands.audit",
        "list the extension modules of an application and what they support",
    ),
    Verb(
        "telemetry",
        "headway.commands.telemetry",
        "record the reports of processes, and show them in a browser",
    ),
    Verb("top", "headway.commands.top", "show the reports of processes in a terminal"),
    Verb("bench", "headway.commands.bench", "measure what the GIL does to threads"),
    Verb(
        "bench-compare",
        "headway.commands.bench_compare",
        "compare two files of results of `bench`",
    ),
    Verb("tune", "headway.commands.tune", "find the policy and the switch interval that suit best"),
    Verb(
        "simulate",
        "headway.commands.simulate",
        "predict what the GIL does to threads, in virtual time",
    ),
    Verb("status", "headway.commands.status", "show which processes a server has"),
)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, which `main` prints."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)", exit_code=2)


class Version(argparse.Action):
    """`--version`. The version is read on demand, from the installed package's metadata."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from headway import __version__

        implementation = sys.implementation.name.replace("cpython", "CPython")
        print(f"headway {__version__} on {implementation} {sys.version.split()[0]}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `headway ARGUMENTS` (default: `sys.argv[1:]`) and returns the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    # It is for other programs (headway.environment), and the options of this one take its place.
    os.environ.pop("HEADWAY", None)
    verb = next((verb for verb in VERBS if argv[:1] == [verb.name]), None)
    name = f"headway {verb.name}" if verb else "headway"
    try:
        return _run(argv, verb)
    except Error as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, CommandError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Without this redirection the interpreter
        # would print another error when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(argv: list[str], verb: Verb | None) -> int:
    parser = Parser(
        prog="headway",
        description="Measures CPython's GIL exactly, and serves WSGI applications on top of that.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    parsers = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    asked, module, program = parser, None, None
    for each in VERBS:
        verb_parser = parsers.add_parser(
            each.name,
            help=each.summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if each is verb:
            asked = verb_parser
            module = import_module(each.module)
            module.prepare_parser(verb_parser)
            if hasattr(module, "split_arguments"):
                argv[1:], program = module.split_arguments(argv[1:])
    parsed, unknown = parser.parse_known_args(argv)
    if unknown:
        # Reported by the verb's parser, so that the error refers to the verb's help.
        asked.error(f"unrecognized arguments: {' '.join(unknown)}")
    assert module is not None, "argparse lets only a known verb through"
    if program is not None:
        parsed.program = program
    return int(module.run(parsed))
