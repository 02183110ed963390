"""The server's log file, which replaces stderr in the supervisor and the processes it starts.

After the file is reopened, running processes keep the file that they have until a new generation
replaces them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from headway.errors import CommandError, Error, reason_of
from headway.server.stderr import say

T = TypeVar("T")


class ErrorLog:
    """A context manager that redirects stderr to the log file and restores it on exit."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> ErrorLog:
        """Raises `CommandError`."""
        self._former = os.dup(2)
        try:
            self._open()
        except CommandError:
            os.close(self._former)
            raise
        return self

    def __exit__(
        self, _: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Error):
            # The caller prints the error to the original stderr; the log file gets it, too.
            say(str(error))
        os.dup2(self._former, 2)
        os.close(self._former)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o644)
        except OSError as error:
            reason = reason_of(error)
            raise CommandError(f"--error-log {self._path}: {reason}", exit_code=2) from None
        # sys.stderr has nothing buffered, since it is flushed after each line.
        os.dup2(fd, 2)
        os.close(fd)

    def opened_anew(self, before: Callable[[], T]) -> Callable[[], T]:
        """Returns a function that reopens the log file, which may have been rotated, and then calls
        `before`."""

        def reopen() -> T:
            self._open()
            return before()

        return reopen
