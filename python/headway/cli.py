"""The `headway` command: finds the verb, calls its module to parse and run, and turns errors into
one line on stderr and an exit code.

A verb is a module with `prepare_parser(parser)` and `run(arguments) -> int`. A verb whose command
line ends in another program's command line also has `split_arguments(arguments)`, which splits that
part off before its own options are parsed. Only the module of the verb in use is imported. Other
packages are asked for their verbs only if the command line begins with none of Headway's own.

A verb with `STARTS_QUICKLY` is one that a program waits for: neither this module nor the verb's
imports argparse, typing or re, unless there is an error or help to print.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from headway.errors import CommandError, Error
from headway.verbs import OF_LAB, VERBS, Verb, added_verbs, lab_is_missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import TextIO

    from headway.quick_arguments import Values


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `headway ARGUMENTS` (default: `sys.argv[1:]`) and returns the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    # It is for other programs (headway.environment), and the options of this one take its place.
    os.environ.pop("HEADWAY", None)
    verb = _find(VERBS, argv)
    lost = None
    try:
        verbs: tuple[Verb, ...] = VERBS
        if verb is None:
            verbs += added_verbs()
            verb = _find(verbs, argv)
        status = _run(argv, verb, verbs)
    except Error as error:
        _complain(f"{_name(verb)}: {error}")
        status = error.exit_code if isinstance(error, CommandError) else 1
    except SystemExit as end:
        if end.code:
            raise
        status = 0
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # The reader of our output has closed the pipe.
        status = 1
    finally:
        lost = _flush(sys.stdout)
        _flush(sys.stderr)
    if lost is not None and status == 0:
        if not isinstance(lost, BrokenPipeError):
            _complain(f"{_name(verb)}: stdout cannot be written: {lost.strerror}")
        return 1
    return status


def _find(verbs: tuple[Verb, ...], argv: list[str]) -> Verb | None:
    return next((verb for verb in verbs if argv[:1] == [verb.name]), None)


def _name(verb: Verb | None) -> str:
    return f"headway {verb.name}" if verb else "headway"


def _complain(line: str) -> None:
    try:
        print(line, file=sys.stderr)
    except OSError:
        _flush(sys.stderr)


def _flush(stream: TextIO | None) -> OSError | None:
    """Where that fails, redirects the stream to /dev/null and returns the error. The interpreter,
    which flushes both streams once more, would end with a status of its own."""
    if stream is None or stream.closed:
        return None
    try:
        stream.flush()
    except OSError as error:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        return error
    return None


def _run(argv: list[str], verb: Verb | None, verbs: tuple[Verb, ...]) -> int:
    if verb is None and argv[:1] and argv[0] in OF_LAB:
        raise CommandError(lab_is_missing(verbs), exit_code=2)
    module, program = None, None
    parsed: Namespace | Values | None = None
    if verb is not None:
        module = import_module(verb.module)
        if hasattr(module, "split_arguments"):
            argv[1:], program = module.split_arguments(argv[1:])
        if hasattr(module, "STARTS_QUICKLY"):
            from headway.quick_arguments import QuickParser

            quick = QuickParser()
            module.prepare_parser(quick)
            parsed = quick.parse(argv[1:])
    if parsed is None:
        from headway import arguments

        parsed = arguments.parse(argv, verbs, module)
    assert module is not None, "argparse lets only a known verb through"
    if program is not None:
        parsed.program = program
    return int(module.run(parsed))
