"""By what it is seen that a file has changed, also where nobody watched it meanwhile."""

from __future__ import annotations

import os

FileState = tuple[int, ...]

MISSING: FileState = ()


def state_of(path: str) -> FileState:
    """Editors write a file anew or put another one in its place."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        # ValueError: no path at all, with a zero in it.
        return MISSING
    return found.st_mtime_ns, found.st_size, found.st_ino
