"""`headway report`: shows the report of an earlier run."""

from __future__ import annotations

import argparse
import os
import sys

from headway.errors import CommandError
from headway.json_file import STDOUT, check_path, write_json
from headway.meter.report_file import read_with_trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.report.model import GilReport

DESCRIPTION = """\
Shows the report of `headway run --json FILE` again. If the run was killed or crashed before it
could write FILE, shows the counters of that moment from FILE.ledger, the run's ledger.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("file", metavar="FILE", help="a report in JSON, or a ledger; - is stdin")
    parser.add_argument(
        "--json",
        metavar="OUT",
        help="also write the report to OUT as JSON (schema 2); with - the JSON goes to stdout, "
        "and the text to stderr",
    )
    parser.add_argument(
        "--trace",
        metavar="OUT",
        help="also write the events of FILE, the ledger of a run with --trace, to OUT for "
        "ui.perfetto.dev; if OUT ends in .svg, as a drawing",
    )
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    from headway.report import terminal

    json_path = "" if arguments.json is None else check_path(arguments.json)
    trace_path = "" if arguments.trace is None else check_path(arguments.trace, "--trace")
    report, trace = read_with_trace(arguments.file, traced=bool(trace_path))
    if trace_path:
        _write_trace(trace, report, trace_path, arguments)
    if json_path:
        try:
            write_json(report.to_dict(), json_path)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CommandError(f"--json {arguments.json!r}: {error.strerror}") from error
    descriptor, stream = (2, sys.stderr) if json_path == STDOUT else (1, sys.stdout)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = terminal.draw(report, terminal.Style.of_stream(descriptor, encoding))
    _write(text.encode(encoding, "backslashreplace"), descriptor)
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
            f"FILE {arguments.file!r} has no trace: it is not the ledger of a run with --trace",
            exit_code=2,
        )
    try:
        told = write_trace(trace, report, path, arguments.name)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"--trace {arguments.trace!r}: {error.strerror}") from error
    _write(f"{told}\n".encode("utf-8", "backslashreplace"), 2)


def _write(data: bytes, descriptor: int) -> None:
    """Past Python's streams: what they could not write, they would try again at the end."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "stdout" if descriptor == 1 else "stderr"
        raise CommandError(f"{name} cannot be written: {error.strerror}") from error
