"""Ends while daemon threads call functions of `headway._native` in a loop, and shows how it ends.

Usage: daemons_in_native.py NAME... Ends once for each name, in a forked child of its own, and
prints a JSON object of the exit statuses. `CALLS` says how each function is called.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from headway import _native
from headway.address import Address
from headway.server.binding import bind
from headway.server.settings import ProcessGroup
from headway.server.worker.serving import Server

Call = Callable[[], object]


class SlowEnd:
    """The threads take the GIL while the interpreter ends."""

    def __del__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        sleep(0.15)


class Slow:
    """A sequence whose methods sleep: the thread ends below a Rust frame."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.0001)
        return self._items[index]


def _profile(function: Call) -> Call:
    _native.profile_begin(None)
    return function


def _trace() -> Call:
    _native.gil_begin_trace(1000, None)
    return _native.gil_read_trace


def _reporter() -> tuple[socket.socket, Any]:
    recorder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/socket"
    recorder.bind(path)
    # The threads write to the socket, whose file is needed no longer.
    sys.kept_folder = folder  # type: ignore[attr-defined]
    return recorder, _native.telemetry_start(os.fsencode(path), 0.5, time.time(), {}, True)


def _of_reporter(function: Callable[..., object], *arguments: object) -> Call:
    recorder, reporter = _reporter()
    return lambda: (recorder, function(reporter, *arguments))


def _starts() -> None:
    _, reporter = _reporter()
    _native.telemetry_stop(reporter, "", "", True)


def _arrived() -> Call:
    recorder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    wake, _ = socket.socketpair()
    return lambda: _native.telemetry_arrived(recorder.fileno(), wake.fileno(), 100_000)


def _server() -> Any:
    group = ProcessGroup(name="test", binds=())
    server = Server(lambda environ, start_response: [], [bind(Address("127.0.0.1", 0))], group)
    return server._native


def _of_server(function: Callable[..., object], *arguments: object) -> Call:
    server = _server()
    return lambda: function(server, *arguments)


def _serves() -> Call:
    """The application is where the thread ends."""
    listener = bind(Address("127.0.0.1", 0))
    address = ("127.0.0.1", listener.address.port)

    def application(environ: Any, start_response: Any) -> list[bytes]:
        time.sleep(0.0001)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    Server(application, [listener], ProcessGroup(name="test", binds=(), threads=2)).start()

    def request() -> None:
        with socket.create_connection(address) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            client.recv(4096)

    return request


def _plain(function: Callable[..., object], *arguments: object) -> Callable[[], Call]:
    return lambda: lambda: function(*arguments)


# Functions that make the call, in the child. Each name is one that releases the GIL, or runs Python
# code of its arguments.
CALLS: dict[str, Callable[[], Call]] = {
    "gil_snapshot": _plain(_native.gil_snapshot),
    "gil_read_trace": _trace,
    "gil_install": _plain(_native.gil_install, None, False, None, None),
    "await_signal_report": _plain(_native.await_signal_report),
    "gc_watch": _plain(_native.gc_watch, ""),
    "profile_read": lambda: _profile(_native.profile_read),
    "profile_end": lambda: _profile(_native.profile_end),
    "fork_begins": lambda: _profile(_of_reporter(lambda _: _fork())),
    "fork_ends_in_parent": lambda: _of_reporter(lambda _: _fork()),
    "stacks_read": _plain(lambda: _read_stack()),
    "stacks_end": _plain(_native.stacks_end),
    "telemetry_arrived": _arrived,
    "telemetry_start": _plain(_starts),
    "telemetry_stopping": lambda: _of_reporter(_native.telemetry_stopping, "", ""),
    "telemetry_stop": lambda: _of_reporter(_native.telemetry_stop, "", "", True),
    "telemetry_merge": _plain(lambda: _refused(_native.telemetry_merge, Slow(b"", b""))),
    "telemetry_add_server": lambda: _add_server(),
    "server_open": _plain(lambda: _refused(_native.server_open, [], Slow(1), Slow(1), {})),
    "server_work": _serves,
    "server_stop": lambda: _of_server(_native.server_stop, 0),
    "server_abort": lambda: _of_server(_native.server_abort),
    "server_retire": lambda: _retire(),
    "server_next_wanted": lambda: _of_server(_native.server_next_wanted, 100_000),
    "server_interrupt": lambda: _of_server(_native.server_interrupt),
    "interpreter_of_caller": _plain(lambda: _of_caller()),
}


def _fork() -> None:
    _native.fork_begins()
    _native.fork_ends_in_parent()


def _read_stack() -> None:
    _refused(_native.stacks_read, threading.main_thread().native_id, 100_000)


def _of_caller() -> None:
    def environs() -> list[dict[str, object]]:
        time.sleep(0.0001)
        return []

    _native.interpreter_of_caller(None, lambda *_: None, environs, RuntimeError)


def _add_server() -> Call:
    recorder, reporter = _reporter()
    server = _server()
    places = Slow(("g", "n", False))
    return lambda: (recorder, _native.telemetry_add_server(reporter, server, 1, places))  # type: ignore[arg-type]


def _retire() -> Call:
    server = _server()
    interpreter = _native.interpreter_of_caller(None, lambda *_: None, list, RuntimeError)
    return lambda: _native.server_retire(server, interpreter, 0)


def _refused(function: Callable[..., object], *arguments: object) -> None:
    with contextlib.suppress(RuntimeError, ValueError, TypeError, KeyError):
        function(*arguments)


def end_with(name: str) -> None:
    if name != "gil_install":
        _native.gil_install(None, False, None, None)
    call = CALLS[name]()

    def loop() -> None:
        while True:
            try:
                call()
            except RuntimeError:
                time.sleep(0.0001)

    for _ in range(2):
        threading.Thread(target=loop, daemon=True).start()
    sys.slow_end = SlowEnd()  # type: ignore[attr-defined]
    time.sleep(0.1)


def main() -> None:
    children: dict[str, int] = {}
    for name in sys.argv[1:]:
        children[name] = os.fork()
        if children[name] == 0:
            end_with(name)
            return
    statuses = {name: os.waitpid(pid, 0)[1] for name, pid in children.items()}
    print(json.dumps({name: os.waitstatus_to_exitcode(each) for name, each in statuses.items()}))


if __name__ == "__main__":
    main()
