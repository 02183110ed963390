"""A contention profile of the running program, for `headway.gil.profile`."""

from __future__ import annotations

import os
import sys

from headway.errors import Error
from headway.meter import engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from headway.profile.model import Profile


class Profiling:
    """Charges what threads wait for a GIL to Python code, from `start` to `stop`; on a
    free-threaded build, what they wait for locks.

    There is one profile at a time in a process, so a second one cannot start. As a context manager
    it starts and stops by itself, and `take` returns the result afterwards too.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._taken: Profile | None = None

    def start(self) -> None:
        """Begin with nothing charged. The meter must be installed.

        Raises `Unsupported`, with the reason, if another profile is on, or if the frames of this
        interpreter cannot be read.
        """
        engine.begin_profile()
        self._is_on = True

    def take(self) -> Profile:
        """Return what has been charged so far, or until `stop`.

        Raises `Error` if the profile was never started.
        """
        if self._is_on:
            self._taken = _to_profile(engine.read_profile())
        if self._taken is None:
            raise Error("the profile was never started")
        return self._taken

    def stop(self) -> Profile:
        """Stop charging, and return what has been charged. Further calls return the same.

        Raises `Error` if the profile was never started.
        """
        if self._is_on:
            self._is_on = False
            self._taken = _to_profile(engine.end_profile())
        return self.take()

    def write(self, path: str) -> None:
        """Write the result of `take` to a file, in the format of its name: NAME.svg is a flame
        graph, NAME.pb.gz is for pprof, NAME.json for speedscope.app, NAME.txt has one stack a line.

        Raises `ValueError` for another name, and `OSError`.
        """
        from headway.errors import CommandError
        from headway.profile import profile_file

        try:
            profile_file.format_of(path, "write()")
        except CommandError as refusal:
            raise ValueError(str(refusal)) from None
        profile_file.write_profile(self.take(), path)

    def __enter__(self) -> Profiling:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _to_profile(raw: dict[str, Any] | None) -> Profile:
    from headway.profile import reading

    if raw is None:
        raise Error("this process was forked from the one that has the profile")
    program = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return reading.to_profile(raw, os.getpid(), program)
