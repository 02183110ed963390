"""Progress on stderr: one line that is replaced on a terminal, several lines elsewhere. If stderr
was closed before the interpreter started there is none."""

from __future__ import annotations

import os
import sys

from headway.report import columns

WIDTH = 80  # of a terminal that does not tell


def progress(text: str) -> None:
    if sys.stderr is None:
        return
    if sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
        # A line that wraps could not be replaced.
        sys.stderr.write(f"\r\x1b[K{columns.cut(text, width - 1)}")
    else:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def clear_progress() -> None:
    """Removes the progress line before other text is printed on the terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
