"""The server's messages on stderr, from any interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

READER_PATIENCE_S = 1


def report_exception(exception: BaseException, request: str) -> None:
    """Reports an exception of the application on stderr."""
    lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
    say(f"in {request}\n{''.join(lines).rstrip()}")


def say(text: str) -> None:
    """A line of the server's log; further lines may follow it."""
    tell(f"{stamp()}headway serve: {text}\n")


def tell(text: str) -> None:
    """Writes to stderr in a single write, so that threads do not mix their lines. Does not wait for
    a reader that has stopped reading, as a pager does: the text is lost, and the number of lost
    texts is written when the reader goes on. The application may have closed or replaced stderr;
    then the text may be lost, too."""
    with contextlib.suppress(Exception):
        _losses.tell(text)


class _Losses:
    """Writes to stderr while it has room."""

    def __init__(self) -> None:
        self._count = 0
        self._is_within_a_line = False

    def tell(self, text: str) -> None:
        if self._count:
            end = "\n" if self._is_within_a_line else ""
            lost = f"{self._count} message{'s were' if self._count > 1 else ' was'} lost"
            text = f"{end}{stamp()}headway: {lost}, because nobody read stderr\n{text}"
        if self._write(text):
            self._count = 0
        else:
            self._count += 1

    def poll_timeout_ms(self) -> int:
        """Waits for a slow reader, but not again before it has read."""
        return 0 if self._count else 1000 * READER_PATIENCE_S

    def _write(self, text: str) -> bool:
        """Whether all of it was written. Does not use the buffer of `sys.stderr`: the end of the
        interpreter would try again to write what is left in it."""
        # Imported here because other interpreters have no use for it.
        import select

        try:
            fd = sys.stderr.fileno()
        except (AttributeError, OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()
            return True
        data = text.encode(errors="backslashreplace")
        room = select.poll()
        room.register(fd, select.POLLOUT)
        is_begun = False
        with _without_waiting(fd) as (ours, size):
            while data:
                try:
                    if not room.poll(self.poll_timeout_ms()):
                        raise BlockingIOError
                    data = data[os.write(ours, data[:size]) :]
                except OSError:
                    self._is_within_a_line |= is_begun
                    return False
                is_begun = True
        self._is_within_a_line = False
        return True


def flush_streams() -> None:
    """Flushes stdout and stderr at the end of the process. If nobody reads one of them, redirects
    it to /dev/null: the end of the interpreter flushes it again, and would wait for the reader or
    exit with status 120."""
    import select

    for stream in (sys.stdout, sys.stderr):
        # The application may have closed or replaced it.
        with contextlib.suppress(Exception):
            fd = stream.fileno()
            room = select.poll()
            room.register(fd, select.POLLOUT)
            try:
                if room.poll(_losses.poll_timeout_ms()) != [(fd, select.POLLOUT)]:
                    raise BlockingIOError
                stream.flush()
            except OSError:
                null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(null, fd)
                os.close(null)


@contextlib.contextmanager
def _without_waiting(fd: int) -> Iterator[tuple[int, int | None]]:
    """Opens the pipe or terminal anew, since its flags would be those of each process that has it.
    Where poll(2) says that there is room, a terminal with room for a part of the text waits for the
    rest, and another process may take the room of a pipe. Returns the descriptor, and how many
    bytes to write at once; `None` if it has no limit."""
    import select
    import stat

    ours, kind = fd, os.fstat(fd).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
        # The pipe of another user cannot be opened.
        with contextlib.suppress(OSError):
            ours = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        yield ours, None if ours != fd or stat.S_ISREG(kind) else select.PIPE_BUF
    finally:
        if ours != fd:
            os.close(ours)


_losses = _Losses()


def stamp() -> str:
    """The time and the process id, for a log that goes to a file or a pipe. A terminal shows lines
    as they come, and systemd's journal adds both by itself."""
    try:
        if os.isatty(2) or os.environ.get("JOURNAL_STREAM") == _name_of_stderr():
            return ""
    except OSError:
        return ""
    now = time.time()
    # datetime is not used: in CPython 3.12 and 3.13 all interpreters share parts of it.
    local = time.localtime(now)
    zone = time.strftime("%z", local)
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{int(now * 1000) % 1000:03d}"
    return f"{moment}{zone[:3]}:{zone[3:]} [{os.getpid()}] "


def _name_of_stderr() -> str:
    """The device and inode of stderr in the format of JOURNAL_STREAM in systemd.exec(5)."""
    found = os.fstat(2)
    return f"{found.st_dev}:{found.st_ino}"
