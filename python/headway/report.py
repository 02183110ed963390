"""`headway report`, and the reading of reports from files.

A report is the plain dict of schema 1 (DESIGN.md, "The GIL report"), whoever made it: this file
knows the meter only where it reads a *ledger*, the binary file of books that a run leaves when it
was killed. How a report looks is `headway.terminal`'s business.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys

from headway import schema
from headway.errors import CommandError, Error
from headway.json_file import STDOUT, check_path, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DESCRIPTION = """\
Shows the report of `headway run --json FILE` again. If that run was killed or crashed before it
could write FILE, shows what its ledger, FILE.ledger, held at that moment.
"""

# More is not a report: the largest is some 300 threads of two histograms each.
MAX_JSON_BYTES = 256 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "file", metavar="FILE", help="a report in JSON, or a ledger; - reads it from stdin"
    )
    parser.add_argument(
        "--json",
        metavar="OUT",
        help="also write the report to OUT as JSON (schema 1); with - that goes to stdout, and the "
        "text to stderr",
    )
    parser.add_argument(
        "--trace",
        metavar="OUT",
        help="where FILE is the ledger of a run with --trace: also write the events that it kept "
        "to OUT, for ui.perfetto.dev, or to OUT.svg as a drawing",
    )
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    from headway import terminal

    json_path = "" if arguments.json is None else check_path(arguments.json)
    trace_path = "" if arguments.trace is None else check_path(arguments.trace, "--trace")
    report, trace = _read(arguments.file, traced=bool(trace_path))
    if trace_path:
        _write_trace(trace, report, trace_path, arguments)
    if json_path:
        try:
            write_json(report, json_path)
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
    report: dict[str, Any],
    path: str,
    arguments: argparse.Namespace,
) -> None:
    from headway.timeline.trace_file import write_trace

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


def read_report(file: str) -> dict[str, Any]:
    """The report in FILE, in FILE.ledger if that is newer, or on stdin for "-".

    Raises CommandError (exit code 2) if there is none, or if it is not of schema 1.
    """
    return _read(file)[0]


def _read(file: str, traced: bool = False) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """As `read_report`; if `traced`, with the events that a ledger has."""
    if file == "-":
        return _read_stdin(traced)
    ledger = f"{file}.ledger"
    try:
        path = ledger if _is_newer(ledger, file) else file
        with open(path, "rb") as stream:
            start = stream.read(1)
            if start == b"{":
                return parse_json(start + stream.read(MAX_JSON_BYTES), path), None
        return _read_ledger(path, path, traced)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"FILE {file!r}: {reason}", exit_code=2) from error


def _is_newer(ledger: str, file: str) -> bool:
    """A run removes its ledger once FILE is written, so one that is there is of a later run that
    did not get so far, or of one that still goes on."""
    try:
        ledger_time = os.stat(ledger).st_mtime_ns
    except OSError:
        return False
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return True
    return status.st_size == 0 or status.st_mtime_ns <= ledger_time


def _read_stdin(traced: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
    stdin = sys.stdin.buffer
    start = stdin.read(1)
    if start == b"{":
        return parse_json(start + stdin.read(MAX_JSON_BYTES), "-"), None
    if stat.S_ISREG(os.fstat(0).st_mode):
        return _read_ledger("/proc/self/fd/0", "-", traced)
    # The meter maps ledgers, which a pipe cannot be. A ledger comes from Linux, so that has memfds;
    # nearly all of it is zeros that take no room, and the copy is to stay like that.
    with open(os.memfd_create("headway-ledger"), "wb") as copy:
        copy.write(start)
        while block := stdin.read(BLOCK_BYTES):
            if block.count(0) == len(block):
                copy.seek(len(block), os.SEEK_CUR)
            else:
                copy.write(block)
        copy.truncate(copy.tell())
        copy.flush()
        return _read_ledger(f"/proc/self/fd/{copy.fileno()}", "-", traced)


def _read_ledger(
    path: str, name: str, traced: bool
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    from headway import gil

    try:
        report: dict[str, Any] = gil.read_ledger(path).to_dict()
        trace = gil.read_ledger_trace(path) if traced else None
    except (Error, ValueError) as error:
        raise CommandError(
            f"FILE {name!r} is neither a report in JSON nor a ledger: {error}", exit_code=2
        ) from error
    return report, trace


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """The report in `data`; CommandError names what of schema 1 it lacks."""
    try:
        report = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"FILE {name!r} is not JSON: {error}", exit_code=2) from error
    problem = schema.find_problem(report)
    if problem:
        raise CommandError(f"FILE {name!r} is no GIL report: {problem}", exit_code=2)
    checked: dict[str, Any] = report
    return checked
