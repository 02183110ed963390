"""The thread of `headway attach` inside the target: measures on request, and leaves.

It runs in a thread of its own, which the script of `session` starts, and speaks with the command
over a UNIX socket. What the program may have replaced (`socket`, `threading`, by gevent) is not
used. If the command is gone, or the time is over, the thread ends the measurement by itself.

A message is its length in four bytes and a value in marshal's format: a tuple of a word and what
belongs to it.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

THREAD_NAME = b"headway attach"
# How long this thread waits for the begin, and after the time of the measurement for its end. The
# end of the command needs no time: it closes the socket.
SLACK_S = 60.0
MOST_BYTES = 1 << 30

# Those that speak with a command now.
_guests: list[_Guest] = []
# What `--keep` has left on, until `headway detach`: as `_Guest._restored`.
_kept: list[tuple[bool, str]] = []
_follows_forks = False


class Gone(Exception):
    """The command has closed the socket, or its time is over."""


def serve(path: str) -> None:
    """Speaks with the command that listens at `path`, until that ends."""
    import _socket

    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        socket.settimeout(SLACK_S)
        try:
            socket.connect(path)
        except OSError:
            # The command has ended.
            raise Gone from None
        _check_peer(socket, _socket)
        guest = _Guest(Connection(socket))
        if _guests:
            Connection(socket).send("busy")
            return
        _follow_forks()
        _guests.append(guest)
        try:
            guest.serve()
        finally:
            guest.leave()
            _guests.remove(guest)
    except Gone:
        _remove(os.path.dirname(path))
    finally:
        socket.close()


def _remove(folder: str) -> None:
    """What a command that was killed has left. From 3.14 on the script stays, because a thread may
    still be asked to run it."""
    names = ["socket"]
    if sys.version_info < (3, 14):
        names += ["script.py", "script.py.gdb", "script.py.out"]
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if os.fstat(place).st_uid == os.geteuid():
            for name in names:
                try:  # noqa: SIM105 - contextlib is not loaded in every program
                    os.unlink(name, dir_fd=place)
                except OSError:
                    pass
            os.rmdir(folder)
    except OSError:
        pass
    finally:
        os.close(place)


def _check_peer(socket: Any, _socket: Any) -> None:
    """Only the own user may say what happens here."""
    credentials = socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    uid = int.from_bytes(credentials[4:8], sys.byteorder)
    if uid != os.geteuid():
        raise Gone


class Connection:
    """Messages over a socket of `_socket` or `socket`, whose timeout is set."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    def send(self, *message: Any) -> None:
        data = marshal.dumps(message)
        try:
            self.socket.sendall(len(data).to_bytes(4, "little") + data)
        except OSError:
            raise Gone from None

    def receive(self) -> tuple[Any, ...]:
        """Raises `Gone` at the end of the stream, and if nothing comes within the timeout."""
        size = int.from_bytes(self._read(4), "little")
        if size > MOST_BYTES:
            raise Gone
        message: tuple[Any, ...] = marshal.loads(self._read(size))
        return message

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = self.socket.recv(min(size, 1 << 20))
            except OSError:
                raise Gone from None
            if not part:
                raise Gone
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class _Guest:
    """The side of the target: it turns measuring on, and off again when it leaves."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._before: dict[str, Any] | None = None
        # Whether the meter was off before, and else the policy; None if there is nothing to undo.
        self._restored: tuple[bool, str] | None = None
        self._keeps = False
        self._reporter: Any = None
        self._profiles = False
        self._traces = False

    def serve(self) -> None:
        self._connection.send("hello")
        while True:
            word, *values = self._connection.receive()
            try:
                answer = getattr(self, f"_{word}")(*values)
            except Exception as problem:
                answer = "refused", f"{type(problem).__name__}: {problem}"
            self._connection.send(*answer)
            if word == "end":
                return

    def _begin(self, options: dict[str, Any]) -> tuple[Any, ...]:
        """Starts measuring. `options`: see `session.Options`."""
        import _thread

        from headway import _native
        from headway.errors import Error
        from headway.meter import engine

        self._connection.socket.settimeout(options["limit_s"] + SLACK_S)
        try:
            policy = ""
            is_ours = not engine.is_installed()
            if not is_ours:
                self._before = engine.read_counters()
                policy = self._before["policy"]
            engine.change_policy(options["policy"])
            self._restored = is_ours, policy
            if is_ours:
                engine.read_loops()
            _native.gil_name_thread(_thread.get_native_id(), THREAD_NAME)
            if options["trace_events"]:
                engine.begin_trace(options["trace_events"])
                self._traces = True
            if options["profile"]:
                engine.begin_profile()
                self._profiles = True
            if options["telemetry"]:
                self._reporter = _report_to(options["telemetry"])
        except (Error, OSError, ValueError) as problem:
            return "refused", str(problem)
        return ("begun",)

    def _turn(self, policy: str | None) -> tuple[Any, ...]:
        """Answers with the counters until now. From now on the GIL has `policy`, or if None what it
        had before."""
        from headway.meter import engine

        if not engine.is_installed():
            return "refused", "the program has called gil.uninstall()"
        raw = engine.read_counters()
        _, before = self._restored or (True, "")
        engine.change_policy(policy or before or "interval")
        return "turned", raw

    def _end(self, keep: bool) -> tuple[Any, ...]:
        """Ends the measurement, and answers with what there is: the counters at the begin, if they
        are older, and at the end, the trace and the profile."""
        from headway.meter import engine

        self._keeps = keep
        trace = engine.read_trace() if self._traces else None
        self._traces = False
        profile = engine.end_profile() if self._profiles else None
        self._profiles = False
        raw = engine.read_counters()
        self.leave()
        return "ended", self._before, raw, trace, profile

    def _detach(self) -> tuple[Any, ...]:
        """Ends what an earlier command has left on."""
        was_on = bool(_kept)
        while _kept:
            _restore(*_kept.pop())
        return "detached", was_on

    def leave_in_child(self) -> None:
        """In a forked child, which has the policy, but neither the reporter nor the profile."""
        self._connection.socket.close()
        self._reporter, self._profiles = None, False
        self.leave()

    def leave(self) -> None:
        """Gives CPython back what it had. Does nothing the second time."""
        from headway.meter import engine

        reporter, self._reporter = self._reporter, None
        profiles, self._profiles = self._profiles, False
        traces, self._traces = self._traces, False
        try:
            if reporter is not None:
                reporter.stop("unknown", "headway attach has ended")
            if profiles:
                engine.end_profile()
            if traces:
                engine.read_trace()
        finally:
            before, self._restored = self._restored, None
            if before is not None:
                if not self._keeps:
                    _restore(*before)
                elif not _kept:
                    _kept.append(before)


def _restore(is_ours: bool, policy: str) -> None:
    from headway.meter import engine

    if not engine.is_installed():
        return
    if is_ours:
        engine.uninstall()
    elif policy:
        engine.change_policy(policy)


def _follow_forks() -> None:
    """A child that is forked during a measurement has no guest that would end it."""
    global _follows_forks
    if not _follows_forks:
        _follows_forks = True
        os.register_at_fork(after_in_child=_leave_in_child)


def _leave_in_child() -> None:
    for guest in _guests:
        guest.leave_in_child()
    _guests.clear()


def _report_to(path: str) -> Any:
    from headway.meter import reporter, start

    identity = {"process_name": reporter.as_text(start.program_name())}
    return reporter.Reporter(path, reporter.DEFAULT_INTERVAL_S, identity, kind="run")
