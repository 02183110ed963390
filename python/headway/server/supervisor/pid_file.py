"""The pid file of a server, for programs that send it signals.

The file is locked while the server runs. A second server with the same file is refused, whatever
number an earlier server left in it. A program that locks nothing, such as Apache, also keeps its
file while the process that the file names runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from headway.errors import CommandError, reason_of
from headway.server.config.configuration import cut

# How many bytes of the file's former content are read and shown.
MAX_SHOWN = 80
# How far file times and process start times may differ.
CLOCK_TOLERANCE_S = 2.0


@contextlib.contextmanager
def pid_file(path: str) -> Iterator[None]:
    """A context manager that writes the pid of this process to the file and removes the file at the
    end. Raises `CommandError` if the file cannot be written or another program uses it."""
    try:
        fd = _lock(path)
        try:
            _refuse_what_is_in_use(fd, path)
            os.ftruncate(fd, 0)
            try:
                os.write(fd, f"{os.getpid()}\n".encode())
            except OSError:
                os.unlink(path)
                raise
        except BaseException:
            os.close(fd)
            raise
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
    """Returns a descriptor of the file with an exclusive lock. exec() closes the descriptor, and so
    its copies in workers."""
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
        # The previous holder removed the file between open() and flock().
        os.close(fd)


def _is_at(fd: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


def _refuse_what_is_in_use(fd: int, path: str) -> None:
    """Raises `CommandError` if the file names a running process of another program, or if it is no
    pid file."""
    text = os.pread(fd, MAX_SHOWN, 0).decode(errors="replace").strip()
    if not text:
        return
    number = text.split()[0]
    if not (number.isascii() and number.isdecimal()):
        raise CommandError(
            f"--pid-file {path}: found {cut(text)!r}; allowed: a new file, or one with the process "
            "id of a server that is gone",
            exit_code=2,
        )
    if _has_written(int(number), fd):
        raise CommandError(
            f"--pid-file {path}: found process {number}, which runs and is another program's; "
            "each needs a file of its own",
            exit_code=2,
        )


def _has_written(pid: int, fd: int) -> bool:
    """Whether the process runs and may have written the file. A process that started after the
    file was written only reuses the number."""
    if pid == os.getpid():
        return False
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The program's name before these fields may contain any character. The first of these
            # is the third field of the line, the state.
            values = file.read().rpartition(") ")[2].split()
    except OSError:
        return False
    state, started_ticks = values[0], int(values[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    started = time.time() - age_s
    return state not in "ZX" and started <= os.fstat(fd).st_mtime + CLOCK_TOLERANCE_S
