"""The file of the server's log, in the place of stderr: of the supervisor, and of what it starts.

Who runs already goes on with the file that it has, until a new generation takes its place.
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
    """From `with` on to its end, where stderr is again what it was."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> ErrorLog:
        """Raises `CommandError`."""
        self._former = os.dup(2)
        self._open()
        return self

    def __exit__(
        self, _: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Error):
            # Whoever started the server hears it, too.
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
        # What stands in sys.stderr is written already: it is flushed after each line.
        os.dup2(fd, 2)
        os.close(fd)

    def opened_anew(self, before: Callable[[], T]) -> Callable[[], T]:
        """`before`, and first the file is opened once more: its name may lead to another by now."""

        def reopen() -> T:
            self._open()
            return before()

        return reopen
