"""Restricts an application in its interpreter, as mod_wsgi's WSGIRestrictStdin, -Stdout and -Signal
do."""

from __future__ import annotations

import signal
import sys
from typing import Any

from headway.server.stderr import say


class RestrictedFile:
    """Replaces sys.stdin or sys.stdout. Any use of it except `flush` raises `OSError`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def flush(self) -> None:
        """Does nothing. CPython calls it at the end of an interpreter."""

    def __getattr__(self, attribute: str) -> Any:
        raise OSError(f"sys.{self._name} is restricted by the server's configuration")


def impose(stdin: bool, stdout: bool, signals: bool) -> None:
    """Imposes the restrictions in this interpreter from now on."""
    if stdin:
        sys.stdin = RestrictedFile("stdin")
    if stdout:
        sys.stdout = RestrictedFile("stdout")
    if signals:
        _ignore_handlers()


def _ignore_handlers() -> None:
    allowed = signal.signal

    def ignore(number: int, handler: Any) -> Any:
        # The server installs its own handlers after the application is loaded.
        if sys._getframe(1).f_globals.get("__name__", "").startswith("headway."):
            return allowed(number, handler)
        say(f"a handler for signal {number} was ignored (restrict-signal)")
        return None

    signal.signal = ignore  # type: ignore[assignment]
