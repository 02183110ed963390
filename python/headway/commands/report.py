"""`headway report`: shows the reports of earlier runs."""

from __future__ import annotations

import argparse
import os
import sys

from headway.errors import CommandError
from headway.json_file import STDOUT, check_path, write_json
from headway.meter.report_file import read_recorded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.report.model import GilReport
    from headway.report.terminal import Style

DESCRIPTION = """\
Shows the report of `headway run --json FILE` again. If the run was killed or crashed before it
could write FILE, shows the counters of that moment from FILE.ledger, the run's ledger. Of several
FILEs, a process that another one started is a child in the report of the other.

A ledger stays until it is removed. It is sparse: `ls -l` shows a gigabyte, and `du` the few
megabytes that it takes on the disk.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a report in JSON, or a ledger; - is stdin",
    )
    parser.add_argument(
        "--json",
        metavar="OUT",
        help="also write the report to OUT as JSON (schema 2), or a list of them where the FILEs "
        "are of several programs; with - the JSON goes to stdout, and the text to stderr",
    )
    parser.add_argument(
        "--trace",
        metavar="OUT",
        help="also write the events of FILE, the ledger of a run with --trace, to OUT for "
        "ui.perfetto.dev; if OUT ends in .svg, as a drawing",
    )
    parser.add_argument(
        "--profile",
        metavar="OUT",
        help="where FILE is the ledger of a run with --profile: also write the profile to OUT, in "
        "the format of its name (see headway run --help)",
    )
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)
    # At the end of a program, whose files matter though nobody can read what is printed.
    parser.add_argument("--files-first", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    from headway.report import processes, terminal

    json_path = "" if arguments.json is None else check_path(arguments.json)
    trace_path = "" if arguments.trace is None else check_path(arguments.trace, "--trace")
    profile_path = ""
    if arguments.profile is not None:
        from headway.profile import profile_file

        profile_path = profile_file.check_name(arguments.profile)
    for option, path in (("--trace", trace_path), ("--profile", profile_path)):
        if path and arguments.files[1:]:
            found = f"found {len(arguments.files):,} FILEs; allowed: one"
            raise CommandError(f"{option}: {found}", exit_code=2)
    recorded = [
        read_recorded(file, traced=bool(trace_path), profiled=bool(profile_path))
        for file in dict.fromkeys(arguments.files)
    ]
    reports = processes.programs([each.report for each in recorded])
    report, trace, profile = recorded[0]
    if trace_path:
        _write_trace(trace, report, trace_path, arguments)
    if json_path:
        documents = [each.to_dict() for each in reports]
        try:
            write_json(documents if documents[1:] else documents[0], json_path)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CommandError(f"--json {arguments.json!r}: {error.strerror}") from error
    if arguments.quiet:
        return 0
    descriptor, stream = (2, sys.stderr) if json_path == STDOUT else (1, sys.stdout)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    style = terminal.Style.of_stream(descriptor, encoding)
    text = "\n".join(terminal.draw(each, style) for each in reports)
    if profile_path:
        text += _write_profile(profile, report, profile_path, arguments, style)
    _write(text.encode(encoding, "backslashreplace"), descriptor, arguments)
    return 0


def _write_trace(
    trace: dict[str, Any] | None,
    report: GilReport,
    path: str,
    arguments: argparse.Namespace,
) -> None:
    from headway.trace.trace_file import write_trace

    if trace is None:
        raise CommandError(
            f"FILE {arguments.files[0]!r} has no trace: it is not the ledger of a run with --trace",
            exit_code=2,
        )
    try:
        told = write_trace(trace, report, path, arguments.name)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"--trace {arguments.trace!r}: {error.strerror}") from error
    _write(f"{told}\n".encode("utf-8", "backslashreplace"), 2, arguments)


def _write_profile(
    raw: dict[str, Any] | None,
    report: GilReport,
    path: str,
    arguments: argparse.Namespace,
    style: Style,
) -> str:
    """Writes the file, and returns the lines of the report."""
    from headway.profile import profile_file, reading, table

    if raw is None:
        raise CommandError(
            f"FILE {arguments.files[0]!r} has no profile: it is not the ledger of a run with "
            "--profile",
            exit_code=2,
        )
    profile = reading.to_profile(raw, report.pid, arguments.name, report)
    try:
        written = profile_file.write_profile(profile, path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"--profile {arguments.profile!r}: {error.strerror}") from error
    _write(f"{written}\n".encode("utf-8", "backslashreplace"), 2, arguments)
    return "\n" + "\n".join(table.report_lines(profile, report, style)) + "\n"


def _write(data: bytes, descriptor: int, arguments: argparse.Namespace) -> None:
    """Past Python's streams: what they could not write, they would try again at the end."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        if arguments.files_first:
            return
        if isinstance(error, BrokenPipeError):
            raise
        name = "stdout" if descriptor == 1 else "stderr"
        raise CommandError(f"{name} cannot be written: {error.strerror}") from error
