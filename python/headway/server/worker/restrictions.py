"""What an application may not do in its interpreter, as mod_wsgi's WSGIRestrictStdin, -Stdout and
-Signal have it."""

from __future__ import annotations

import signal
import sys
from typing import Any

from headway.server.stderr import say


class RestrictedFile:
    """In the place of sys.stdin or sys.stdout: to use it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def flush(self) -> None:
        """CPython does at the end of an interpreter."""

    def __getattr__(self, attribute: str) -> Any:
        raise OSError(f"sys.{self._name} is restricted by the server's configuration")


def impose(stdin: bool, stdout: bool, signals: bool) -> None:
    """From now on, in this interpreter."""
    if stdin:
        sys.stdin = RestrictedFile("stdin")
    if stdout:
        sys.stdout = RestrictedFile("stdout")
    if signals:
        _ignore_handlers()


def _ignore_handlers() -> None:
    allowed = signal.signal

    def ignore(number: int, handler: Any) -> Any:
        # The server's own are installed after the application is loaded.
        if sys._getframe(1).f_globals.get("__name__", "").startswith("headway."):
            return allowed(number, handler)
        say(f"a handler for signal {number} was ignored (restrict-signal)")
        return None

    signal.signal = ignore  # type: ignore[assignment]
