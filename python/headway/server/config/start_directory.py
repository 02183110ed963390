"""The directory in which the server is started, by the name that the shell uses for it.

Deployments switch a symbolic link (`/srv/shop/current`) and send SIGHUP. The system knows only the
directory to which the link led when the server was started; the shell's $PWD has the link.
"""

from __future__ import annotations

import contextlib
import os

from headway.errors import CommandError, reason_of


def named() -> str:
    """Returns $PWD if it names the current directory, else the directory's real path. Raises
    `CommandError` if the directory no longer exists."""
    by_shell = os.environ.get("PWD", "")
    with contextlib.suppress(OSError):
        if os.path.isabs(by_shell) and os.path.samestat(os.stat(by_shell), os.stat(".")):
            return by_shell
    try:
        return os.getcwd()
    except OSError as error:
        raise CommandError(f"the current directory: {reason_of(error)}", exit_code=2) from None


def is_current(directory: str) -> bool:
    try:
        return os.getcwd() == directory
    except OSError:
        return False
