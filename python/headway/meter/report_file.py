"""Reads a GIL report from a file: JSON, or the ledger of a run that was killed."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import NamedTuple

from headway.errors import CommandError, Error
from headway.report.model import GilReport, Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Larger files are no reports: the largest report has about 300 threads of two histograms each.
MAX_JSON_BYTES = 256 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024


def read_report(file: str) -> GilReport:
    """Returns the report in FILE, in FILE.ledger if that is newer, or on stdin for "-".

    Raises CommandError (exit code 2) if there is no report, or if it has another schema.
    """
    return read_recorded(file).report


class Recorded(NamedTuple):
    """A report with what a ledger has behind the counters: the events of a trace and a profile, or
    None for what there is not, and for what was not asked for."""

    report: GilReport
    trace: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None


def read_recorded(file: str, *, traced: bool = False, profiled: bool = False) -> Recorded:
    """Reads the report as `read_report` does, with the trace if `traced` and with the profile if
    `profiled`."""
    if file == "-":
        return _read_stdin(traced, profiled)
    ledger = f"{file}.ledger"
    try:
        path = ledger if _is_newer(ledger, file) else file
        with open(path, "rb") as stream:
            start = stream.read(1)
            if start == b"{":
                return Recorded(parse_json(start + stream.read(MAX_JSON_BYTES), path))
        return _read_ledger(path, path, traced, profiled)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"FILE {file!r}: {reason}", exit_code=2) from error


def _is_newer(ledger: str, file: str) -> bool:
    """Whether the ledger belongs to a later run than FILE. A run removes its ledger once FILE is
    written, so an existing ledger belongs to a run that ended before that, or that still goes
    on."""
    try:
        ledger_time = os.stat(ledger).st_mtime_ns
    except OSError:
        return False
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return True
    return status.st_size == 0 or status.st_mtime_ns <= ledger_time


def _read_stdin(traced: bool, profiled: bool) -> Recorded:
    stdin = sys.stdin.buffer
    start = stdin.read(1)
    if start == b"{":
        return Recorded(parse_json(start + stdin.read(MAX_JSON_BYTES), "-"))
    if stat.S_ISREG(os.fstat(0).st_mode):
        return _read_ledger(0, "-", traced, profiled)
    # The meter maps ledgers into memory, which does not work for a pipe. Ledgers exist on Linux
    # only, which has memfds. A ledger is sparse, and so is the copy.
    with open(os.memfd_create("headway-ledger"), "wb") as copy:
        copy.write(start)
        while block := stdin.read(BLOCK_BYTES):
            if block.count(0) == len(block):
                copy.seek(len(block), os.SEEK_CUR)
            else:
                copy.write(block)
        copy.truncate(copy.tell())
        copy.flush()
        return _read_ledger(copy.fileno(), "-", traced, profiled)


def _read_ledger(ledger: str | int, name: str, traced: bool, profiled: bool) -> Recorded:
    from headway.meter import engine
    from headway.meter.snapshot import Snapshot

    try:
        report = Snapshot(engine.read_ledger(ledger)).report()
        trace = engine.read_ledger_trace(ledger) if traced else None
        profile = engine.read_ledger_profile(ledger) if profiled else None
    except (Error, ValueError) as error:
        raise CommandError(
            f"FILE {name!r} is neither a report in JSON nor a ledger: {error}", exit_code=2
        ) from error
    return Recorded(report, trace, profile)


def parse_json(data: bytes, name: str) -> GilReport:
    """Returns the report in `data`. Raises CommandError, which names the problem."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"FILE {name!r} is not JSON: {error}", exit_code=2) from error
    try:
        return GilReport.decode(parsed)
    except Malformed as problem:
        raise CommandError(f"FILE {name!r} is no GIL report: {problem}", exit_code=2) from None
