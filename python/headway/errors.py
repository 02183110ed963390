"""The exceptions of Headway."""

from __future__ import annotations


class Error(Exception):
    """The base of every exception that Headway raises on purpose.

    Its text is one line that states what was expected, what was found and what to do.
    """


class CommandError(Error):
    """A command of `headway` cannot continue: the command line prints the text as one line and
    exits.

    `exit_code` is 2 for bad usage or configuration, found before anything started, else 1.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RequestTimeout(BaseException):
    """The request of this thread has taken longer than request-timeout allows.

    `headway serve` raises it in the middle of the application if interrupt-timeout is set.

    It is neither an `Error` nor an `Exception`, so that an application's `except Exception` does
    not catch it. Code that catches it to clean up must raise it again; the client then gets 504.
    """


def reason_of(error: OSError | OverflowError) -> str:
    """The system's message for the error, formatted for the end of a line."""
    reason: str = getattr(error, "strerror", None) or str(error)
    return reason[:1].lower() + reason[1:] if reason[1:2].islower() else reason


class Unsupported(Error):
    """The meter cannot work in this process. The text gives the reason.

    `headway.gil.install()` raises it on platforms other than Linux on x86-64 or aarch64, and if its
    checks of the interpreter leave any doubt. It has changed nothing in that case.
    """
