"""`headway serve`: serves WSGI applications, as flags, a TOML file or an Apache file say."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headway.address import Address
from headway.commands import policy_flags
from headway.errors import CommandError, reason_of
from headway.server.config import check, start_directory
from headway.server.config.apache.file import read_apache
from headway.server.config.apache.unenforced import FLAG
from headway.server.config.configuration import Draft, put_over
from headway.server.config.files import ConfigurationFiles
from headway.server.config.flags import add_flags, read_flags
from headway.server.config.resolution import Resolution, resolve
from headway.server.config.toml_file import read_toml
from headway.server.settings import ServerSettings
from headway.server.stderr import say
from headway.server.supervisor import import_check
from headway.server.supervisor.inherited import (
    by_number,
    inherited_from_systemd,
    open_standard_streams,
)
from headway.server.supervisor.loop import supervise

DESCRIPTION = """\
Serves a WSGI application (PEP 3333) over HTTP/1.1. One thread of a process handles one request: it
reads the request, takes the GIL once, calls the application and writes the response. A server that
gets SIGINT or SIGTERM answers the requests that clients have sent by then, and ends. It then prints
a table of each process with the response times and the exact waits for the GIL, by path. If stderr
is no terminal, only a server of one process prints it, or one with --final-table.
"""

EXAMPLES = """\
examples:
  headway serve shop.wsgi:application
  headway serve shop:app --bind 0.0.0.0:8080 --threads 8 --access-log json
  headway serve shop:app --bind unix:/run/shop.sock --access-log common:/var/log/shop.log
  headway serve shop:app --policy interval  the GIL as CPython schedules it, measured only
  headway serve shop:app --threads 8 --interpreters 4 --per-interpreter-gil
                                            one process on four cores; first: headway audit shop:app
  headway serve --config serve.toml         several process groups
  headway serve --config httpd.conf --check the meaning of an Apache file with mod_wsgi's directives

Seconds and bytes take units: 500ms, 2m, 64k, 10M. 0 turns a limit off, unless its range excludes 0.
"""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Leaves the names of options more room than argparse does."""

    def __init__(self, prog: str, width: int | None = None) -> None:
        super().__init__(prog, max_help_position=31, width=width)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = HelpFormatter
    parser.usage = "%(prog)s [APP | --config FILE] [options]"
    parser.description = DESCRIPTION
    parser.epilog = f"{policy_flags.describe()}\n{EXAMPLES}"
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="read the configuration from a TOML file, or from an Apache file (.conf) with "
        "mod_wsgi's directives; flags override the values of its process group, if it has "
        "only one",
    )
    parser.add_argument(
        FLAG,
        metavar="DIRECTIVE",
        action="append",
        default=[],
        help="with an Apache file: serve although headway serve does not enforce this directive, "
        "or this section, such as 'Location /admin'; for what a proxy in front enforces; may be "
        "given several times, and each start warns of it",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="print every value with its origin and every error, and start nothing",
    )
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal comes; returns the exit code."""
    # First, while every descriptor that is not passed is closed.
    inherited = inherited_from_systemd()
    open_standard_streams()
    passed = [by_number(each) for each in inherited]
    if arguments.check:
        return _check(arguments, passed)
    start, files = start_directory.named(), ConfigurationFiles()

    def settings() -> ServerSettings:
        return _settings(arguments, start, files, passed)

    return supervise(settings(), settings, files.paths, inherited)


def _check(arguments: argparse.Namespace, passed: Sequence[Address]) -> int:
    folder = os.path.realpath(start_directory.named())
    resolution = read_configuration(arguments, folder, passed=passed)
    # An Apache file may have bytes that are no text.
    drawn = check.draw(resolution).encode(sys.stdout.encoding, "backslashreplace")
    sys.stdout.write(drawn.decode(sys.stdout.encoding))
    sys.stdout.flush()
    for warning in resolution.warnings:
        print(f"headway serve: warning: {warning}", file=sys.stderr)
    problems = check.problems(resolution) or list(_imports(resolution))
    for problem in problems:
        print(f"headway serve: {problem}", file=sys.stderr)
    return 2 if problems else 0


def _imports(resolution: Resolution) -> Iterator[str]:
    """Warns of modules that may not be imported without a GIL; yields what goes wrong."""
    for group in resolution.groups:
        origin, found = group.values["free-threading"].origin, import_check.look(group)
        for name in found.undeclared:
            print(
                f"headway serve: warning: {origin}: process group {group.settings.name} imports "
                f"the module {name}, which does not declare that it can run without a GIL",
                file=sys.stderr,
            )
        if found.problem:
            yield f"{origin}: process group {group.settings.name}: {found.problem}"


def _settings(
    arguments: argparse.Namespace,
    start: str,
    files: ConfigurationFiles,
    passed: Sequence[Address],
) -> ServerSettings:
    """The settings, at the start and again at each SIGHUP. `start` may then lead to another
    directory: a generation stays with one directory."""
    folder = os.path.realpath(start)
    resolution = read_configuration(arguments, folder, files, passed)
    for warning in resolution.warnings:
        say(f"warning: {warning}")
    for problem in check.problems(resolution):
        raise CommandError(problem, exit_code=2)
    has_moved = not start_directory.is_current(folder)
    return replace(resolution.settings, directory=folder if has_moved else None)


def read_configuration(
    arguments: argparse.Namespace,
    folder: str,
    files: ConfigurationFiles | None = None,
    passed: Sequence[Address] = (),
) -> Resolution:
    """The configuration from flags and file, with relative paths from `folder` on. `passed` has the
    addresses on which a service manager listens. Raises `CommandError` with exit code 2."""
    flags = read_flags(arguments, folder)
    accepted: list[str] = arguments.accept_unenforced
    if arguments.config is None:
        if accepted:
            raise _without_apache_file(accepted)
        if not flags.groups[0].mounts:
            raise CommandError("APP is required, or --config FILE (see --help)", exit_code=2)
        return resolve(flags, passed)
    name = arguments.config
    if not start_directory.is_current(folder):
        name = os.path.join(folder, name)
    has_bind = bool(flags.groups[0].binds)
    draft = _read_file(name, files or ConfigurationFiles(), accepted, has_bind)
    return resolve(put_over(flags, draft, name), passed)


def _read_file(path: str, files: ConfigurationFiles, accepted: list[str], has_bind: bool) -> Draft:
    if path.endswith(".conf"):
        return read_apache(path, files, accepted, has_bind=has_bind)
    try:
        text = files.read(path)
    except OSError as error:
        reason = reason_of(error)
        raise CommandError(f"--config {path}: {reason}", exit_code=2) from None
    except UnicodeDecodeError as error:
        raise CommandError(
            f"--config {path}: byte {error.start} is not UTF-8", exit_code=2
        ) from None
    if not is_toml(path, text):
        return read_apache(path, files, accepted, has_bind=has_bind)
    if accepted:
        raise _without_apache_file(accepted)
    return read_toml(path, text)


def _without_apache_file(accepted: list[str]) -> CommandError:
    return CommandError(
        f"{FLAG}: found {accepted[0]!r}; allowed: with an Apache file as --config", exit_code=2
    )


def is_toml(path: str, text: str) -> bool:
    """By the file's name, or by its first line that says something."""
    if path.endswith(".toml"):
        return True
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return re.match(r"""\[|[\w."'-]+\s*=""", first) is not None
