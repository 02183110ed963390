"""Folders whose names others know, as below /tmp and /run: whoever makes one first owns it.

`headway run` imports this module while a program waits, so it imports nothing else.
"""

from __future__ import annotations

import os
import stat


def make_owned(path: str) -> str:
    """Creates the folder `path` if there is none. Returns why it is not one of this user that
    nobody else can write to, or "". Raises OSError."""
    try:  # noqa: SIM105 - contextlib is not loaded
        os.mkdir(path, 0o755)
    except FileExistsError:
        pass
    status = os.lstat(path)
    mode, user = stat.S_IMODE(status.st_mode), os.geteuid()
    if not stat.S_ISDIR(status.st_mode):
        found = "it is no folder"
    elif status.st_uid != user:
        found = f"it belongs to user {status.st_uid}"
    elif mode & 0o022:
        found = f"its mode is {mode:04o}"
    else:
        return ""
    return f"{found}; allowed: a folder of user {user} that nobody else may write to"
