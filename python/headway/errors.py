"""The exceptions of Headway. They know nothing of who shows them."""

from __future__ import annotations


class Error(Exception):
    """The base of every exception that Headway raises on purpose.

    Its text is one line that says what was expected, what was found and what to do.
    """


class CommandError(Error):
    """A command of `headway` cannot go on: the command line shows the text as one line and ends.

    `exit_code` is 2 for bad usage or configuration, found before anything started, else 1.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RequestTimeout(BaseException):
    """The request that this thread runs has taken longer than request-timeout allows.

    Raised by `headway serve` in the middle of the application where interrupt-timeout is set.

    Not an `Error`, nor an `Exception`, so that an application's `except Exception` lets it pass.
    Whoever catches it to clean up raises it again; the client gets 504 then.
    """


def reason_of(error: OSError | OverflowError) -> str:
    """What the system says of it, for the end of a line."""
    reason: str = getattr(error, "strerror", None) or str(error)
    return reason[:1].lower() + reason[1:] if reason[1:2].islower() else reason


class Unsupported(Error):
    """The meter cannot work in this process, and the text says why.

    Raised by `headway.gil.install()` on platforms other than Linux with glibc on x86-64 or
    aarch64, and where what was found in the interpreter leaves any doubt. Nothing was changed.
    """
