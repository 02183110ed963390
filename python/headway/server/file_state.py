"""The state of a file, by which a change is detected even if nobody watched the file meanwhile."""

from __future__ import annotations

import os

FileState = tuple[int, ...]

MISSING: FileState = ()


def state_of(path: str) -> FileState:
    """The state of the file at `path`. It has the inode, because some editors write a new file in
    place of the old one."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        # ValueError: the path contains a zero byte.
        return MISSING
    return found.st_mtime_ns, found.st_size, found.st_ino
