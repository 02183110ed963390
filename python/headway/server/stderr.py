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
    """Writes to stderr in a single write, so that threads do not mix their lines. The application
    may have closed or replaced stderr; then the text is lost."""
    with contextlib.suppress(Exception):
        if _losses is None:
            sys.stderr.write(text)
            sys.stderr.flush()
        else:
            _losses.tell(text)


@contextlib.contextmanager
def losing_what_nobody_reads() -> Iterator[None]:
    """While entered, `tell` does not wait for a reader of stderr that has stopped reading, as a
    pager does: its texts are lost, and their number is written when the reader goes on."""
    global _losses
    former, _losses = _losses, _Losses()
    try:
        yield
    finally:
        _losses = former


class _Losses:
    """Writes to stderr while it has room."""

    def __init__(self) -> None:
        self._count = 0
        self._is_within_a_line = False

    def tell(self, text: str) -> None:
        if self._count:
            end = "\n" if self._is_within_a_line else ""
            lost = f"{self._count} message{'s were' if self._count > 1 else ' was'} lost"
            text = f"{end}{stamp()}headway serve: {lost}, because nobody read stderr\n{text}"
        if self._write(text):
            self._count = 0
        else:
            self._count += 1

    def _write(self, text: str) -> bool:
        """Whether all of it was written. Waits for a slow reader, but not again before it has
        read."""
        # Imported here because other interpreters have no use for it.
        import select

        try:
            fd = sys.stderr.fileno()
        except (OSError, ValueError):
            sys.stderr.write(text)
            return True
        data = text.encode(errors="backslashreplace")
        room = select.poll()
        room.register(fd, select.POLLOUT)
        is_begun = False
        with _without_waiting(fd) as ours:
            while data:
                try:
                    if not room.poll(0 if self._count else 1000 * READER_PATIENCE_S):
                        raise BlockingIOError
                    data = data[os.write(ours, data[: select.PIPE_BUF]) :]
                except BlockingIOError:
                    self._is_within_a_line |= is_begun
                    return False
                is_begun = True
        self._is_within_a_line = False
        return True


@contextlib.contextmanager
def _without_waiting(fd: int) -> Iterator[int]:
    """Opens the pipe or terminal anew, since its flags would be those of each process that has it.
    Where poll(2) says that there is room, a terminal with room for a part of the text waits for the
    rest, and another process may take the room of a pipe."""
    import stat

    ours, kind = fd, os.fstat(fd).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
        # The pipe of another user cannot be opened.
        with contextlib.suppress(OSError):
            ours = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        yield ours
    finally:
        if ours != fd:
            os.close(ours)


_losses: _Losses | None = None


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
