"""The parts of a seam: commands as a person types them, each the foreground job of a terminal or of
a shell, and the ways in which they end."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch import HEADWAY, SLOWNESS, environment
from process_tree import Watched, descendants, described, state
from started_program import TIMEOUT_S, StartedProgram

# From the end of a command to that of the last process that it started.
TREE_LIMIT_S = 10 * SLOWNESS
CTRL_C = b"\x03"
# Becomes a command whose session has the terminal, so that the kernel sends it SIGHUP.
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Part(StartedProgram):
    """A command. What it writes to stdout and to stderr, or to its terminal, is `stderr`."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        on_terminal: bool = False,
        pass_fds: tuple[int, ...] = (),
        **variables: str,
    ) -> None:
        self._terminal = None
        if on_terminal:
            ours, theirs = pty.openpty()
            self._terminal, stdin = ours, theirs
            command = [sys.executable, "-c", ON_TERMINAL, *command]
        else:
            ours, theirs = os.pipe()
            stdin = subprocess.PIPE
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(**variables),
            stdin=stdin,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            pass_fds=pass_fds,
            text=True,
        )
        os.close(theirs)
        self._output = process.stderr = _Output(ours)  # type: ignore[assignment]
        super().__init__(process)

    def press(self, keys: bytes) -> None:
        assert self._terminal is not None
        with suppress(OSError):
            os.write(self._terminal, keys)

    def interrupt(self) -> None:
        """Ctrl-C: a key of a program that reads its terminal, else a signal to the group."""
        if self._terminal is None:
            os.killpg(self.process.pid, signal.SIGINT)
        else:
            self.press(CTRL_C)

    def close_terminal(self) -> None:
        assert self._terminal is not None
        self._terminal = None
        self._output.stop()
        self._reader.join(TIMEOUT_S)
        self._output.close()

    def close_stdin(self) -> None:
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def tree(self) -> Watched:
        """Its processes that run now."""
        pid = self.process.pid
        return Watched(each for each in {pid, *descendants(pid)} if state(each) not in ("Z", ""))

    def wait(self) -> int:
        try:
            return self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError((described(self.process.pid), self.stderr)) from None

    def close(self) -> None:
        """When it has ended, or must."""
        self.close_stdin()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(TIMEOUT_S)
        self._output.close()


class _Output:
    """The end of a pipe or of a terminal that is read; where the last process on a terminal ends, a
    read is an error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._stopped, self._stopping = os.pipe()
        self._open = [descriptor, self._stopped, self._stopping]

    def __iter__(self) -> Iterator[str]:
        with suppress(OSError):
            while self._stopped not in select.select([self._descriptor, self._stopped], [], [])[0]:
                data = os.read(self._descriptor, 65536)
                if not data:
                    break
                yield data.decode(errors="replace")

    def stop(self) -> None:
        """Ends the iteration, though the command may write more."""
        os.write(self._stopping, b".")

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())


class Scene:
    """The parts of one seam, in a folder of their own. The last one started is the one that ends;
    the others are its partners."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: list[Part] = []
        self._ending: list[Callable[[], None]] = []
        self.given: set[str] = set()
        self.victims: set[int] = set()
        # The socket of the service manager that a test is for a program.
        self.manager: socket.socket

    @property
    def main(self) -> Part:
        return self.parts[-1]

    def write(self, name: str, text: str) -> str:
        self.given.add(name)
        (self.folder / name).write_text(text)
        return name

    def start(self, command: list[str], ready: str, **options: object) -> Part:
        """Starts a part and waits until it has said `ready`."""
        part = Part(command, self.folder, **options)  # type: ignore[arg-type]
        self.parts.append(part)
        if ready:
            part.wait_for(ready)
        return part

    def headway(self, *words: str, ready: str, **options: object) -> Part:
        return self.start([*HEADWAY, *words], ready, **options)

    def python(self, *words: str, ready: str, **options: object) -> Part:
        return self.start([sys.executable, *words], ready, **options)

    def wait_for_file(self, name: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while not (self.folder / name).exists():
            assert time.monotonic() < end, self.main.stderr
            time.sleep(0.01)
        self.given.add(name)

    def kill(self, pid: int) -> None:
        self.victims.add(pid)
        os.kill(pid, signal.SIGKILL)

    def at_end(self, call: Callable[[], None]) -> None:
        """Called when every part has ended."""
        self._ending.append(call)

    def end_partners(self) -> None:
        """By SIGTERM, in the order opposite to their start, as their own rows end them."""
        for part in reversed(self.parts[:-1]):
            if part.process.poll() is None:
                with part.tree() as tree:
                    part.process.terminate()
                    part.close_stdin()
                    assert part.wait() == 0, part.stderr
                    assert not tree.wait(TREE_LIMIT_S), part.stderr
                    assert not tree.killed(), part.stderr

    def close(self) -> None:
        for part in reversed(self.parts):
            part.close()
        for call in reversed(self._ending):
            call()

    def sockets(self) -> set[str]:
        return {path.name for path in self.folder.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)}

    def files(self) -> set[str]:
        """The files in the folder that the scene has not put there."""
        return set(os.listdir(self.folder)) - self.given


def assert_ports_free(said: str) -> None:
    """No address that a part has named accepts a connection any more."""
    for host, port in set(re.findall(r"https?://([\d.]+):(\d+)", said)):
        with socket.socket() as connection:
            assert connection.connect_ex((host, int(port))) != 0, f"{host}:{port} is still served"


def assert_readable(store: Path) -> None:
    connection = sqlite3.connect(store)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() > (0,)
    finally:
        connection.close()


@dataclass(frozen=True)
class End:
    """A way to end, and what it has to come to."""

    name: str
    status: int
    # Does something before the end, or is the end where there is no signal. Gets the scene.
    act: Callable[[Scene], None] | None = None
    # "SIGTERM", "Ctrl-C", "terminal closed", or "" where the command ends without one.
    signal: str = ""
    # A regular expression that its output has at the end.
    said: str = ""
    # Files in the folder at the end, besides those of the row.
    leaves: frozenset[str] = frozenset()
    # It is SIGKILL that ends the command, which then cannot clean up: sockets and files may stay.
    is_killed: bool = False
    # The name of a folder in the temporary directory that stays then, empty.
    leaves_folder: str = ""
    # It ends others by SIGKILL, as its documents say.
    kills: bool = False
    # The program's own traceback, which a KeyboardInterrupt is without Headway, too.
    has_traceback: bool = False


@dataclass(frozen=True)
class Row:
    """A feature that two parts make together."""

    name: str
    verb: str
    start: Callable[[Scene], object]
    ends: tuple[End, ...]
    # Options of `headway serve` that start another process or talk to one.
    options: tuple[str, ...] = ()
    # Files that the command makes and keeps.
    files: frozenset[str] = frozenset()
    slow: str = ""
    # A package that it needs, and whether it needs a GIL.
    package: str = ""
    needs_gil: bool = False


def run(row: Row, end: End, folder: Path) -> float:
    """Starts the parts of the row, ends them, and checks what is left. Returns the seconds from the
    signal, or from what else ends it, to the end of the command's last process."""
    scene = Scene(folder)
    try:
        row.start(scene)
        main = scene.main
        if end.signal and end.act is not None:
            end.act(scene)
        with main.tree() as tree:
            began = time.monotonic()
            if end.signal == "SIGTERM":
                main.process.terminate()
            elif end.signal == "Ctrl-C":
                main.interrupt()
            elif end.signal == "terminal closed":
                main.close_terminal()
            else:
                assert end.act is not None
                end.act(scene)
            status = main.wait()
            main.close_stdin()
            left = tree.wait(TREE_LIMIT_S)
            seconds = time.monotonic() - began
            assert status == end.status, (status, main.stderr)
            assert not left, ([tree.commands[pid] for pid in left], main.stderr)
            killed = {pid: each for pid, each in tree.killed().items() if pid not in scene.victims}
            assert not killed or end.kills, (killed, main.stderr)
        scene.end_partners()
    finally:
        scene.close()
    for part in scene.parts:
        assert_ports_free(part.stderr)
        if not end.has_traceback:
            assert "Traceback" not in part.stderr, part.stderr
    assert re.search(end.said, main.stderr), main.stderr
    if not end.is_killed:
        assert scene.sockets() <= row.files | end.leaves
        assert scene.files() <= row.files | end.leaves, scene.files()
        assert scene.files() >= row.files, scene.files()
    elif end.leaves_folder:
        (left_behind,) = Path(tempfile.gettempdir()).glob(end.leaves_folder)
        left_behind.rmdir()
    for store in folder.glob("*.sqlite"):
        assert_readable(store)
    return seconds
