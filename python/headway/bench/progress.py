"""Progress on stderr: a line that replaces the last on a terminal, lines elsewhere."""

from __future__ import annotations

import sys


def progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    else:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def clear_progress() -> None:
    """For what is to be said on the terminal next."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
