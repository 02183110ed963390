"""The file that a server's process id is in, for whoever sends it signals.

It is locked for as long as the server runs: a second one with the same file is refused, whatever
number an earlier one may have left in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from headway.errors import CommandError, reason_of


@contextlib.contextmanager
def pid_file(path: str) -> Iterator[None]:
    """Has the pid of this process in it for as long as the context lasts. Raises `CommandError`
    where it cannot be written, or another server has it."""
    try:
        fd = _lock(path)
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
    except OSError as error:
        reason = reason_of(error)
        raise CommandError(f"--pid-file {path}: {reason}", exit_code=2) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if _is_at(fd, path):
                os.unlink(path)
        os.close(fd)


def _lock(path: str) -> int:
    """A descriptor of the file, locked. It is closed by exec, and so are its copies in workers."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(fd, path):
                return fd
        except BlockingIOError:
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip()
            os.close(fd)
            raise CommandError(
                f"--pid-file {path}: another server has it (process {holder}); "
                "each needs a file of its own",
                exit_code=2,
            ) from None
        except BaseException:
            os.close(fd)
            raise
        # Whoever had it has removed it in between.
        os.close(fd)


def _is_at(fd: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)
