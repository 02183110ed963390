"""The server's messages on stderr, from any interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback


def report_exception(exception: BaseException, request: str) -> None:
    """Reports an exception of the application on stderr."""
    lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
    say(f"in {request}\n{''.join(lines).rstrip()}")


def say(text: str) -> None:
    """A line of the server's log; further lines may follow it."""
    tell(f"{stamp()}headway serve: {text}\n")


def tell(text: str) -> None:
    """Writes to stderr in a single write, so that threads do not mix their lines. The application
    may have closed or replaced stderr; then the text is lost."""
    with contextlib.suppress(Exception):
        sys.stderr.write(text)
        sys.stderr.flush()


def stamp() -> str:
    """The time and the process id, for a log that goes to a file or a pipe. A terminal shows lines
    as they come, and systemd's journal adds both by itself."""
    try:
        if os.isatty(2) or os.environ.get("JOURNAL_STREAM") == _name_of_stderr():
            return ""
    except OSError:
        return ""
    now = time.time()
    # datetime is not used: in CPython 3.12 and 3.13 all interpreters share parts of it.
    local = time.localtime(now)
    zone = time.strftime("%z", local)
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{int(now * 1000) % 1000:03d}"
    return f"{moment}{zone[:3]}:{zone[3:]} [{os.getpid()}] "


def _name_of_stderr() -> str:
    """The device and inode of stderr in the format of JOURNAL_STREAM in systemd.exec(5)."""
    found = os.fstat(2)
    return f"{found.st_dev}:{found.st_ino}"
