"""Reads the configuration in a thread of its own, because a file system, DNS or a directory of
users may keep it waiting. The supervisor's loop goes on meanwhile and polls `fileno()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from headway.server.settings import ServerSettings
from headway.server.system import System


class Reading:
    """A call of `read`, which begins with the object."""

    def __init__(self, read: Callable[[], ServerSettings], system: System) -> None:
        """Raises `RuntimeError` or `OSError` if the system has no thread or descriptor left."""
        self._read = read
        self._settings: ServerSettings | None = None
        self._error: BaseException | None = None
        self._read_fd, self._write_fd = os.pipe()
        try:
            system.start_thread(self._run)
        except BaseException:
            os.close(self._write_fd)
            self.close()
            raise

    def fileno(self) -> int:
        """Readable when the reading is done."""
        return self._read_fd

    def is_done(self) -> bool:
        return self._settings is not None or self._error is not None

    def settings(self) -> ServerSettings:
        """The result of a reading that is done. Raises what `read` raised."""
        if self._error is not None:
            raise self._error
        assert self._settings is not None
        return self._settings

    def close(self) -> None:
        os.close(self._read_fd)

    def _run(self) -> None:
        try:
            self._settings = self._read()
        except BaseException as error:
            self._error = error
        finally:
            # The other end becomes readable.
            os.close(self._write_fd)
