"""The command line of `headway` and of its verbs, parsed by argparse, whose errors are one line."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import NoReturn

from headway.errors import CommandError
from headway.verbs import Verb, lab_is_missing


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, which `headway.cli.main` prints."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)", exit_code=2)


class Version(argparse.Action):
    """`--version`. The version is read on demand, from the installed package's metadata."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from headway import __version__

        implementation = sys.implementation.name.replace("cpython", "CPython")
        print(f"headway {__version__} on {implementation} {sys.version.split()[0]}")
        parser.exit()


def parse(
    words: list[str], verbs: tuple[Verb, ...], module: ModuleType | None
) -> argparse.Namespace:
    """Parses `headway WORDS`. The first word is the verb of `module`, or, where that is None, not a
    verb. Raises CommandError (exit code 2), and SystemExit after --help and --version."""
    parser = Parser(
        prog="headway",
        description="Shows which threads wait for CPython's GIL, ends these waits, and serves WSGI "
        "applications.",
        # The help of a verb has no need of it.
        epilog="" if module else _wrapped([lab_is_missing(verbs), *_addresses()]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action=Version,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show the version and exit",
    )
    parsers = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    asked = parser
    for each in verbs:
        verb_parser = parsers.add_parser(
            each.name,
            help=each.summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if module is not None and each.module == module.__name__:
            asked = verb_parser
            module.prepare_parser(verb_parser)
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        # Reported by the verb's parser, so that the error refers to the verb's help.
        asked.error(f"unrecognized arguments: {' '.join(unknown)}")
    return parsed


def _addresses() -> Iterator[str]:
    """The project's addresses, which the installed package has from `project.urls`."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        addresses = metadata("headway").get_all("Project-URL") or []
    except PackageNotFoundError:
        return
    for each in addresses:
        name, _, address = each.partition(", ")
        yield f"{name}: {address}"


def _wrapped(paragraphs: list[str]) -> str:
    """In the width that argparse chooses. An address stays whole."""
    columns = shutil.get_terminal_size().columns - 2
    return "\n".join(
        textwrap.fill(each, columns, break_long_words=False, break_on_hyphens=False)
        for each in paragraphs
        if each
    )
