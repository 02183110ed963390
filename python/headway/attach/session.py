"""The conversation of `headway attach` with the thread that it has in the target (`guest`)."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from headway._native import SERVER_SOFTWARE
from headway.attach.gdb import GDB_LIMIT_S, Gdb
from headway.attach.guest import Connection, Gone
from headway.attach.remote_debugging import RemoteDebugging
from headway.attach.stopped import CannotStop
from headway.attach.target import REMOTE_DEBUGGING, Refused, Target, check_version
from headway.errors import Error

# How long the target has to run the script, to import Headway then, and to answer.
WITHIN_S = 5.0
IMPORT_S = 20.0
ANSWER_S = 30.0
# Another try to stop a process with a thread in an uninterruptible wait.
PAUSE_S = 0.1
TRIES = 5
POLL_S = 0.01

# Runs in whichever thread of the target has the GIL next, so it imports nothing that is not loaded:
# it takes the ticket, which is there once and for some seconds, and starts a thread. gevent and
# eventlet replace `start_new_thread`, and not its older name.
SCRIPT = """\
import posix, time, _thread
try:
    posix.unlink({ticket!r})
except OSError:
    pass
else:
    if time.monotonic() < {deadline!r}:
        getattr(_thread, "start_new", _thread.start_new_thread)(exec, ({code!r}, {{}}))
"""
# Runs in that thread. A Headway that the program has loaded is used if it is this version. Each
# read of a file drops the GIL, so beside CPU-bound threads the imports would take seconds at 5 ms
# each.
CODE = """\
import sys
def begin(folder, version, path):
    interval, short = sys.getswitchinterval(), 0.0002
    sys.setswitchinterval(min(interval, short))
    try:
        serve = load(folder, version, path)
    except BaseException as problem:
        tell(path, "failed", f"{{type(problem).__name__}}: {{problem}}")
        return
    finally:
        if sys.getswitchinterval() <= short:
            sys.setswitchinterval(interval)
    if serve:
        serve(path)
def load(folder, version, path):
    package = sys.modules.get("headway")
    if package is None:
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location(
            "headway", folder + "/__init__.py", submodule_search_locations=[folder]
        )
        package = module_from_spec(spec)
        sys.modules["headway"] = package
        try:
            spec.loader.exec_module(package)
        except BaseException:
            del sys.modules["headway"]
            raise
    # The name and the version of the package, which needs no metadata beside it.
    from headway import _native
    if _native.SERVER_SOFTWARE != version:
        tell(path, "other", _native.SERVER_SOFTWARE)
        return None
    from headway.attach import guest
    from headway.meter import engine
    return guest.serve
def tell(path, *words):
    import _socket, marshal
    told = marshal.dumps(words)
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        socket.connect(path)
        socket.sendall(len(told).to_bytes(4, "little") + told)
    except OSError:
        pass
    finally:
        socket.close()
begin({folder!r}, {version!r}, {path!r})
"""


class Options(TypedDict):
    """What the guest is to do. `policy` is None to leave it; `trace_events` and `telemetry`, the
    path of a recorder's socket, are 0 and "" for none; after `limit_s` seconds without a word the
    guest ends by itself."""

    policy: str | None
    limit_s: float
    trace_events: int
    profile: bool
    telemetry: str


class Session:
    """A thread of ours in the target, from the construction until the end of the `with` block."""

    def __init__(self, target: Target) -> None:
        """Raises `Refused` or `Error` if the target did not let us in. It is as before then."""
        check_version(target)
        self.target = target
        self.attach_s = 0.0
        # Whether a thread of the target may still run the script: then it has to stay ours.
        self._is_asked = False
        # Before there is a folder, which a command that is killed would leave.
        self._gdb = Gdb(target) if target.version < REMOTE_DEBUGGING else None
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="headway-attach-"))
        except OSError as error:
            raise Refused(f"no folder can be made: {error.strerror}") from error
        try:
            self._connection = self._enter()
        except BaseException:
            self._remove_folder()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        """The guest ends, if it has not, and turns off what it had turned on."""
        self._connection.socket.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if not self._is_asked or not os.path.exists(f"/proc/{self.target.pid}"):
            shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, word: str, *values: Any) -> tuple[Any, ...]:
        """Raises `Error` if the target has ended, or says that it cannot."""
        try:
            self._connection.send(word, *values)
            answer = self._connection.receive()
        except Gone:
            raise Error(f"process {self.target.pid} has ended, or does not answer") from None
        if answer[0] == "refused":
            raise Error(f"process {self.target.pid}: {answer[1]}")
        return answer[1:]

    def begin(self, options: Options) -> None:
        self.ask("begin", options)

    def _enter(self) -> Connection:
        began = time.monotonic()
        name, ticket, script = (
            str(self._folder / each) for each in ("socket", secrets.token_hex(8), "script.py")
        )
        package = str(Path(__file__).resolve().parents[1])
        code = CODE.format(folder=package, version=SERVER_SOFTWARE, path=name)
        by_gdb = self.target.version < REMOTE_DEBUGGING
        deadline = time.monotonic() + WITHIN_S + (GDB_LIMIT_S if by_gdb else 0)
        text = SCRIPT.format(ticket=ticket, deadline=deadline, code=code)
        for path, content in ((script, text), (ticket, "")):
            Path(path).write_text(content)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(name)
            listener.listen(1)
            self._have_run(script, ticket, began + WITHIN_S)
            peer = self._accept(listener)
        peer.settimeout(ANSWER_S)
        connection = Connection(peer)
        try:
            word, *values = connection.receive()
        except Gone:
            word, values = "closed", []
        if word != "hello":
            peer.close()
            raise self._refusal(word, *values)
        self.attach_s = time.monotonic() - began
        return connection

    def _refusal(self, word: str, *values: str) -> Error:
        """Returns the error for what the target answered instead of a welcome."""
        pid = self.target.pid
        if word == "failed":
            return Refused(f"process {pid} cannot import Headway: {values[0]}")
        if word == "busy":
            return Refused(f"another headway attach measures process {pid}")
        if word == "other":
            return Refused(
                f"process {pid} has {values[0]} loaded, and this is {SERVER_SOFTWARE}: attach with "
                "that version"
            )
        return Error(f"process {pid} has closed the connection")

    def _accept(self, listener: socket.socket) -> socket.socket:
        """The connection of the target; a forked child of it does not count."""
        deadline = time.monotonic() + IMPORT_S
        while True:
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                raise Refused(
                    f"process {self.target.pid} runs the script, but did not import Headway within "
                    f"{IMPORT_S:.0f} s"
                ) from None
            credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if int.from_bytes(credentials[:4], sys.byteorder) == self.target.pid:
                return peer
            peer.close()

    def _have_run(self, script: str, ticket: str, deadline: float) -> None:
        """Until the target takes the ticket. Raises `Refused` if it does not in time."""
        if self._gdb is not None:
            self._gdb.ask(script, WITHIN_S)
            return
        asking = RemoteDebugging(self.target)
        try:
            while True:
                try:
                    asking.ask(script)
                    self._is_asked = True
                    break
                except CannotStop as problem:
                    if time.monotonic() > deadline:
                        raise Refused(f"process {self.target.pid}: {problem}") from None
                    time.sleep(PAUSE_S)
            while os.path.exists(ticket):
                if time.monotonic() > deadline:
                    with suppress(FileNotFoundError):
                        os.unlink(ticket)
                        raise Refused(
                            f"no thread of process {self.target.pid} ran Python code within "
                            f"{WITHIN_S:.0f} s (all are in calls): it was left as it was"
                        )
                    break
                time.sleep(POLL_S)
        finally:
            # A request that cannot be taken back finds no ticket, and its script stays ours.
            for _ in range(TRIES):
                with suppress(Error, OSError):
                    asking.withdraw()
                    self._is_asked = False
                    break
                time.sleep(PAUSE_S)
            asking.close()
