"""Reads a GIL report from a file: JSON, or the ledger of a run that was killed."""

from __future__ import annotations

import json
import os
import stat
import sys

from headway.errors import CommandError, Error
from headway.report.model import GilReport, Malformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# More is not a report: the largest is some 300 threads of two histograms each.
MAX_JSON_BYTES = 256 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024


def read_report(file: str) -> GilReport:
    """The report in FILE, in FILE.ledger if that is newer, or on stdin for "-".

    Raises CommandError (exit code 2) if there is none, or if it is of another schema.
    """
    return read_with_trace(file)[0]


def read_with_trace(file: str, traced: bool = False) -> tuple[GilReport, dict[str, Any] | None]:
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


def _read_stdin(traced: bool) -> tuple[GilReport, dict[str, Any] | None]:
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


def _read_ledger(path: str, name: str, traced: bool) -> tuple[GilReport, dict[str, Any] | None]:
    from headway.meter import engine
    from headway.meter.snapshot import Snapshot

    try:
        report = Snapshot(engine.read_ledger(path)).report()
        trace = engine.read_ledger_trace(path) if traced else None
    except (Error, ValueError) as error:
        raise CommandError(
            f"FILE {name!r} is neither a report in JSON nor a ledger: {error}", exit_code=2
        ) from error
    return report, trace


def parse_json(data: bytes, name: str) -> GilReport:
    """The report in `data`. Raises CommandError, which names what is wrong with it."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"FILE {name!r} is not JSON: {error}", exit_code=2) from error
    try:
        return GilReport.decode(parsed)
    except Malformed as problem:
        raise CommandError(f"FILE {name!r} is no GIL report: {problem}", exit_code=2) from None
