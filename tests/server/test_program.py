"""`headway.serve`: a server in a program of one's own."""

from __future__ import annotations

import http.client
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import ADDRESS_NOT_AVAILABLE, python
from served import TIMEOUT_S

import headway
from headway.address import parse_address
from headway.errors import CommandError
from headway.server.settings import ProcessGroup, Tls
from headway.server.worker import program

PROGRAM = """
import headway, sys

def app(environ, start_response):
    start_response("200 OK", [])
    return [b"from the program\\n"]

left = headway.serve(app, bind=["127.0.0.1:0", "unix:{path}"], threads=2, policy="priority",
                     access_log="common")
assert not headway.gil.is_installed()
print("left", left)
"""


@pytest.mark.free_threading
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_program_serves_until_a_signal_and_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "socket"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(path=path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        port = int(re.search(r"listening on http://127.0.0.1:(\d+)", process.stderr.readline())[1])
        assert process.stderr.readline() == f"headway: listening on unix:{path}\n"
        assert ask(port) == b"from the program\n"
        process.send_signal(number)
        said, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert '"GET / HTTP/1.1" 200' in said
    assert said.endswith("left 0\n")
    assert not path.exists()


FIRST_SIGNAL = "os.kill(os.getpid(), signal.SIGTERM); stop.wait()"
FIRST_EVENT = """stop.set()
    while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        time.sleep(0.01)
"""
# A request that ends the program twice and takes a while itself.
ENDED_TWICE = """
import headway, os, signal, sys, threading, time
from headway.server.worker import program

program.ONE_SIGNAL_S = {one_signal_s}
stop = threading.Event()

def app(environ, start_response):
    {first}
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep({seconds})
    start_response("200 OK", [])
    return [b"answered\\n"]

headway.serve(app, bind="127.0.0.1:0", stop=stop, graceful_timeout=3600)
"""


@pytest.mark.free_threading
@pytest.mark.parametrize(
    ("first", "one_signal_s", "seconds", "status"),
    [
        (FIRST_SIGNAL, 60, 0.5, 0),
        (FIRST_SIGNAL, 0, TIMEOUT_S, -signal.SIGTERM),
        (FIRST_EVENT, 60, TIMEOUT_S, -signal.SIGTERM),
    ],
)
def test_only_a_later_signal_ends_at_once(
    first: str, one_signal_s: float, seconds: float, status: int
) -> None:
    """`timeout` signals its child, then the process group of both."""
    source = ENDED_TWICE.format(first=first, one_signal_s=one_signal_s, seconds=seconds)
    with subprocess.Popen(
        [sys.executable, "-c", source], stderr=subprocess.PIPE, text=True
    ) as process:
        port = int(re.search(r"127.0.0.1:(\d+)", process.stderr.readline())[1])
        try:
            if status:
                with pytest.raises(http.client.RemoteDisconnected):
                    ask(port)
            else:
                assert ask(port) == b"answered\n"
            assert process.wait(TIMEOUT_S) == status, process.stderr.read()
        finally:
            process.kill()


def ask(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request("GET", "/")
    body = connection.getresponse().read()
    connection.close()
    return body


def test_arguments_that_are_not_given_are_those_of_the_settings(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    settings = ProcessGroup(
        binds=(parse_address(f"unix:{tmp_path / 'sock'}"),),
        threads=1,
        policy="interval",
        kernel_hints=False,
        switch_interval_s=0.002,
        access_log="common",
        access_log_path=str(log),
        graceful_timeout_s=0.25,
    )
    stop = threading.Event()
    found: list[object] = []

    def app(environ: dict[str, object], start_response: object) -> list[bytes]:
        found.extend((environ["wsgi.multithread"], sys.getswitchinterval()))
        start_response("200 OK", [])  # type: ignore[operator]
        return [b""]

    def announce(address: str) -> None:
        found.append(address)
        is_up.set()

    is_up = threading.Event()
    thread = threading.Thread(
        target=headway.serve,
        args=(app,),
        kwargs={"settings": settings, "announce": announce, "stop": stop},
    )
    thread.start()
    try:
        assert is_up.wait(TIMEOUT_S)
        ask_unix(tmp_path / "sock")
    finally:
        stop.set()
        thread.join()
    assert found == [f"unix:{tmp_path / 'sock'}", False, 0.002]
    assert '"GET / HTTP/1.1" 200' in log.read_text()


@pytest.mark.free_threading
def test_a_thread_serves_until_the_event_is_set() -> None:
    """Beside another that does so too."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stop = threading.Event()
    left: list[int] = []

    def app(environ: dict[str, object], start_response: object) -> list[bytes]:
        start_response("200 OK", [])  # type: ignore[operator]
        return [b"from a thread\n"]

    addresses: queue.Queue[str] = queue.Queue()

    def serve() -> None:
        left.append(headway.serve(app, bind="127.0.0.1:0", announce=addresses.put, stop=stop))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        port = int(addresses.get(timeout=TIMEOUT_S).rpartition(":")[2])
        assert ask(port) == b"from a thread\n"
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    finally:
        stop.set()
        thread.join()
    assert left == [0]
    with pytest.raises(ConnectionRefusedError):
        ask(port)


@pytest.mark.parametrize("is_bound_anew", [True, False])
def test_only_the_servers_own_socket_file_is_removed(tmp_path: Path, is_bound_anew: bool) -> None:
    path = tmp_path / "socket"
    stop = threading.Event()
    left: list[int] = []
    is_listening = threading.Event()

    def serve() -> None:
        bind = f"unix:{path}"
        announce = lambda _: is_listening.set()  # noqa: E731
        left.append(headway.serve(lambda *_: [], bind=bind, announce=announce, stop=stop))

    thread = threading.Thread(target=serve)
    thread.start()
    with socket.socket(socket.AF_UNIX) as other:
        try:
            assert is_listening.wait(TIMEOUT_S)
            ask_unix(path)
            path.unlink()
            if is_bound_anew:
                other.bind(str(path))
        finally:
            stop.set()
            thread.join()
    assert left == [0]
    assert path.exists() == is_bound_anew


def ask_unix(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert connection.recv(1) == b"H"


# Not served in the clear because the arguments say nothing of TLS.
UNREADABLE = ProcessGroup(tls=Tls("nowhere.pem", "nowhere.pem"))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"bind": "127.0.0.1"}, ValueError, "HOST:PORT"),
        ({"threads": 0}, ValueError, "threads is 0"),
        ({"access_log": "xml"}, ValueError, "access_log is 'xml'"),
        ({"policy": "fair"}, ValueError, "policy is 'fair'"),
        ({"bind": "192.0.2.1:0"}, CommandError, f"^bind 192.0.2.1:0: {ADDRESS_NOT_AVAILABLE}"),
        ({"bind": []}, ValueError, "bind is empty"),
        ({"bind": ["127.0.0.1:0"] * 65}, ValueError, "65 addresses"),
        ({"tls_key": "key.pem"}, ValueError, "TLS needs both"),
        ({"settings": UNREADABLE}, CommandError, "nowhere.pem"),
    ],
)
def test_a_value_that_no_server_can_have(
    arguments: dict[str, object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        headway.serve(lambda *_: [], **{"bind": "127.0.0.1:0", **arguments})


SIGNAL_BEFORE_WAIT = """
import ctypes, os, select, signal
from functools import partial
from headway.server.worker import program

send = getattr(ctypes.PyDLL(None), "raise")

class Poll:
    def __init__(self, poll=select.poll):
        self.real = poll()
        self.register = self.real.register

    def poll(self):
        # One call of C code: no handler runs between the signal and the wait.
        calls = (partial(send, signal.SIGTERM), partial(self.real.poll))
        return list(map(partial.__call__, calls))[1]

select.poll = Poll
print(program._run_until_signal(lambda: None, lambda: 7, None))
"""


@pytest.mark.free_threading
def test_a_signal_that_arrives_just_before_the_wait_ends_it() -> None:
    done = python("-c", SIGNAL_BEFORE_WAIT, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


FORKS = """
import os, signal
from headway.server.worker import program

def begin():
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    signal.raise_signal(signal.SIGTERM)

print(program._run_until_signal(begin, lambda: 7, None))
"""


def test_a_signal_to_a_forked_child_has_its_former_effect() -> None:
    """As multiprocessing expects of its processes."""
    done = python("-c", FORKS, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "-15\n7\n"), done.stderr


class Ended:
    """A run of `program._run_until_signal` in this process, whose SIGTERM counts calls."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.former_calls = 0

    def run(
        self,
        begin: Callable[[], None],
        end: Callable[[], None],
        stop: threading.Event | None = None,
    ) -> None:
        former = signal.signal(signal.SIGTERM, self._count)
        try:
            program._run_until_signal(begin, lambda: end() or 0, stop, lambda: self.now)
            # The former handler is in force again.
            calls = self.former_calls
            signal.raise_signal(signal.SIGTERM)
            assert self.former_calls == calls + 1
            self.former_calls = calls
        finally:
            signal.signal(signal.SIGTERM, former)

    def _count(self, *_: object) -> None:
        self.former_calls += 1

    def signal_after(self, seconds: float) -> None:
        self.now += seconds
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("after_s", "calls"), [(0.0, 0), (0.09, 0), (0.11, 1), (3600.0, 1)])
def test_a_second_signal_has_its_former_effect_if_it_comes_later(
    after_s: float, calls: int
) -> None:
    ended = Ended()
    ended.run(lambda: ended.signal_after(5.0), lambda: ended.signal_after(after_s))
    assert ended.former_calls == calls


def test_after_the_event_the_first_signal_has_its_former_effect() -> None:
    ended = Ended()
    stop = threading.Event()
    ended.run(stop.set, lambda: ended.signal_after(0.0), stop)
    assert ended.former_calls == 1


def test_a_signal_sets_the_event() -> None:
    ended = Ended()
    stop = threading.Event()
    ended.run(lambda: ended.signal_after(0.0), lambda: None, stop)
    assert stop.is_set()
    assert ended.former_calls == 0


def test_a_handler_that_the_program_has_set_meanwhile_stays() -> None:
    ended = Ended()
    caught: list[int] = []
    former = signal.getsignal(signal.SIGINT)

    def begin() -> None:
        signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
        ended.signal_after(0.0)

    try:
        ended.run(begin, lambda: None)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, former)
    assert caught == [signal.SIGINT]
