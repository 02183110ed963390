"""The server's messages on stderr, from any interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback


def report_exception(exception: BaseException, request: str) -> None:
    """Tells stderr what an application raised."""
    lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
    say(f"in {request}\n{''.join(lines).rstrip()}")


def say(text: str) -> None:
    """A line of the server's log; further lines may follow it."""
    tell(f"{stamp()}headway serve: {text}\n")


def tell(text: str) -> None:
    """To stderr, in one write so that threads do not mix. An application may have closed it, or put
    anything in its place: what cannot be told is lost."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
        sys.stderr.flush()


def stamp() -> str:
    """When, and which process: for who reads a file or a pipe. A terminal is read at once, and the
    journal of systemd keeps both itself."""
    try:
        if os.isatty(2) or os.environ.get("JOURNAL_STREAM") == _name_of_stderr():
            return ""
    except OSError:
        return ""
    now = time.time()
    # Not by datetime, of which CPython 3.12 and 3.13 keep parts for all interpreters.
    local = time.localtime(now)
    zone = time.strftime("%z", local)
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{int(now * 1000) % 1000:03d}"
    return f"{moment}{zone[:3]}:{zone[3:]} [{os.getpid()}] "


def _name_of_stderr() -> str:
    """As systemd.exec(5) has it in JOURNAL_STREAM."""
    found = os.fstat(2)
    return f"{found.st_dev}:{found.st_ino}"
