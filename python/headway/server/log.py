"""What the supervisor says of its processes: lines on stderr, which is the server's log."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """A log that is gone is no reason to stop serving."""
    write(f"headway serve: {text}\n")


def write(text: str) -> None:
    """As it is, such as a traceback."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
