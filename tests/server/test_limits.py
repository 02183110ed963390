"""The limits that a worker process watches itself: what it says, on stderr and to its supervisor,
while its threads or its GIL are stuck."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import TOO_MANY_OPEN_FILES
from served import STAMP, TIMEOUT_S, Response, read_response, read_to_end

from headway import _native
from headway.address import Address
from headway.server.binding import bind
from headway.server.settings import HttpLimits, ProcessGroup
from headway.server.worker import serving
from headway.server.worker.native_limits import NO_LIMITS, native_limits, request_timeout_s
from headway.server.worker.serving import Server

pytestmark = pytest.mark.free_threading

LIMITED = Path(__file__).with_name("limited.py")
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


class Limited:
    """A process that runs limited.py; what it says on stderr is gathered as it comes."""

    def __init__(self, group: ProcessGroup, descriptors: int) -> None:
        self.control, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(TIMEOUT_S)
        with worker:
            self.process = subprocess.Popen(
                [sys.executable, str(LIMITED), group.to_json(), str(worker.fileno())],
                pass_fds=[worker.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: resource.setrlimit(
                    resource.RLIMIT_NOFILE, (descriptors, descriptors)
                ),
            )
        self.stderr = ""
        self._reader = threading.Thread(target=self._read_stderr)
        self._reader.start()
        assert self.process.stdout
        port = self.process.stdout.readline()
        assert port, self.end()
        self.address = ("127.0.0.1", int(port))

    def _read_stderr(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.stderr += line

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self.address)
        connection.settimeout(TIMEOUT_S)
        return connection

    def send(self, target: str) -> socket.socket:
        connection = self.connect()
        send(connection, target)
        return connection

    def get(self, target: str) -> Response:
        with self.send(target) as connection:
            return read_response(connection)

    def next_event(self) -> dict[str, str]:
        event: dict[str, str] = json.loads(self.control.recv(65_536))
        assert event.pop("event") == "limit"
        return event

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while words not in self.stderr:
            assert time.monotonic() < end, self.stderr
            time.sleep(0.01)

    def has_no_event(self) -> bool:
        return not is_readable(self.control)

    def end(self) -> str:
        """Ends the process, stuck as it may be; returns all that it said."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout
        assert self.process.stderr
        self.process.stdout.close()
        self.process.stderr.close()
        self.control.close()
        return self.stderr


def send(connection: socket.socket, target: str) -> None:
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())


def is_readable(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


@contextlib.contextmanager
def limited(descriptors: int = 1024, **fields: object) -> Iterator[Limited]:
    server = Limited(ProcessGroup(**fields), descriptors)  # type: ignore[arg-type]
    try:
        yield server
    finally:
        server.end()


def test_a_request_that_runs_too_long_is_named_with_its_stack() -> None:
    with limited(threads=2, request_timeout_s=0.2) as server:
        stuck = server.send("/sleep?600")
        assert server.get("/sleeping_and_hello").body == b"entered\n"
        event = server.next_event()
        assert event["reason"] == "request_timeout"
        # Without a meter nobody knows Python's names.
        name = r"headway-worker-\d" if HAS_GIL else r".*"
        named = rf"GET /sleep\?600 has run for [\d.]+ s on thread {name} \(native id \d+\)"
        assert re.match(named, event["detail"]), event
        # Once, though it goes on; and others are served.
        for _ in range(20):
            assert server.get("/hello").body == b"hello\n"
        assert server.has_no_event()
        said = server.end()
        stuck.close()
    assert said.count("request-timeout allows 0.3 s. Where it is:\n") == 1, said
    stack = said.split("Where it is:\n")[1]
    assert re.search(r"\nsleep \(.*stuck\.py:\d+\)\n", stack), said
    assert "\nsleeping_and_hello (" not in stack
    assert "\napplication (" in stack


def test_stacks_that_do_not_come_keep_the_monitor_from_nothing() -> None:
    """Each is waited for, one after the other. Meanwhile the monitor answers for the threads."""
    limits = {"request_timeout_s": 0.2, "interrupt_timeout_s": 600, "queue_timeout_s": 0.5}
    with limited(threads=8, **limits) as server, contextlib.ExitStack() as open_ones:
        late = open_ones.enter_context(server.send("/hello"))
        assert read_response(late).body == b"hello\n"
        for _ in range(8):
            open_ones.enter_context(server.send("/deaf?600"))
        server.wait_for("No stack: the thread did not answer in time")
        send(late, "/hello")
        assert read_response(late).status == 504
        assert server.stderr.count("No stack") < 8, "all were waited for before that"


def test_an_interrupted_request_is_answered_504_and_its_thread_serves_on() -> None:
    with limited(threads=1, request_timeout_s=0.2, interrupt_timeout_s=600) as server:
        for _ in range(3):
            assert server.get("/compute?600").status == 504
            assert server.get("/hello").body == b"hello\n"
        assert server.has_no_event()
        said = server.end()
    assert said.count("headway.errors.RequestTimeout") == 3, said
    assert len(re.findall(r"^compute \(.*\.py:\d+\)$", said, re.MULTILINE)) == 3, "where it was"
    assert said.count("in compute\n") == 3, "where it was interrupted"


def test_a_request_that_waits_for_its_client_is_interrupted() -> None:
    with limited(threads=1, request_timeout_s=0.5, interrupt_timeout_s=600) as server:
        with server.send("/endless?0"):
            assert server.get("/hello").body == b"hello\n"
        with server.connect() as connection:
            # More than is read before the application runs.
            head = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n"
            connection.sendall(head + bytes(200_000))
            assert read_response(connection).status == 504
        assert server.get("/hello").body == b"hello\n"
        assert server.has_no_event()


def test_a_client_that_sends_slowly_does_not_put_the_interruption_off() -> None:
    with limited(threads=1, request_timeout_s=0.5, interrupt_timeout_s=600) as server:
        with server.connect() as connection:
            head = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n"
            connection.sendall(head + bytes(200_000))
            sent = 0
            while not select.select([connection], [], [], 0.02)[0] and sent < 1_000:
                connection.sendall(b"x")
                sent += 1
            assert sent < 1_000, "it runs on"
            assert read_response(connection).status == 504
        assert server.get("/hello").body == b"hello\n"


def test_a_request_that_catches_the_interruption_is_told_to_the_supervisor() -> None:
    with limited(threads=1, request_timeout_s=0.2, interrupt_timeout_s=0.2) as server:
        stuck = server.send("/stubborn?600")
        event = server.next_event()
        stuck.close()
    assert event["reason"] == "request_timeout"
    assert event["detail"] == "a request runs on 0.2 s after it was interrupted"


@pytest.mark.skipif(not HAS_GIL, reason="no GIL, nothing to hold")
@pytest.mark.parametrize("policy", ["interval", "priority", "deadline"])
def test_a_thread_that_never_drops_the_gil_is_named_with_its_stack(policy: str) -> None:
    with limited(threads=2, deadlock_timeout_s=0.3, policy=policy) as server:
        stuck = server.send("/wedge")
        # Requests until one of them waits for the GIL.
        while not is_readable(server.control):
            with server.send("/hello") as other:
                select.select([other, server.control], [], [], TIMEOUT_S)
        event = server.next_event()
        assert event["reason"] == "deadlock_timeout"
        named = r"thread headway-worker-\d \(native id (\d+)\) has held the GIL for [\d.]+ s"
        found = re.match(named, event["detail"])
        assert found, event
        assert Path(f"/proc/{server.process.pid}/task/{found[1]}").exists()
        said = server.end()
        stuck.close()
    assert re.search(r"Where it is:\n.*\nwedge \(.*stuck\.py:\d+\)\n", said), said


@pytest.mark.skipif(not HAS_GIL, reason="no GIL, nothing to hold")
@pytest.mark.parametrize("policy", ["interval", "priority", "deadline"])
@pytest.mark.slow("computes for 3 s")
def test_a_long_computation_is_no_deadlock(policy: str) -> None:
    # Not less than a second: on a busy machine a thread may get no core for a part of one.
    with limited(threads=2, deadlock_timeout_s=1, policy=policy) as server:
        # Alone first, so that nobody asks it to drop; then beside others that do.
        assert server.get("/compute?1.5").body == b"computed\n"
        computing = server.send("/compute?1.5")
        while not is_readable(computing):
            assert server.get("/hello").body == b"hello\n"
        assert read_response(computing).body == b"computed\n"
        computing.close()
        assert server.has_no_event()
        assert "has held the GIL" not in server.end()


@pytest.mark.skipif(not HAS_GIL, reason="no GIL, nothing to hold")
@pytest.mark.slow("ends after 2.4 s and no sooner")
def test_a_process_that_is_stuck_ends_itself_once_its_supervisor_has_gone() -> None:
    timeouts = {"graceful_timeout_s": 0.2, "shutdown_timeout_s": 0.2}
    with limited(threads=2, **timeouts) as server, server.send("/wedge") as stuck:
        server.control.close()
        # 2 s more than both, as the supervisor gives.
        assert server.process.wait(TIMEOUT_S) == 1
        assert stuck.recv(1) == b""
        said = server.end()
    pid = server.process.pid
    told = rf"{STAMP}headway serve: process \1: did not end within 2.4 s after its supervisor"
    assert [int(each) for each in re.findall(told, said)] == [pid]


def test_without_a_shutdown_timeout_an_orphan_may_take_for_ever() -> None:
    def timeout_ns(**fields: float) -> int:
        return native_limits(ProcessGroup(**fields), 5)["orphan_timeout_ns"]  # type: ignore[arg-type]

    assert timeout_ns() == 22_000_000_000
    assert timeout_ns(graceful_timeout_s=0) == 7_000_000_000
    assert timeout_ns(shutdown_timeout_s=0) == 0


@pytest.mark.skipif(not HAS_GIL, reason="no GIL, nothing to hold")
def test_a_long_hold_that_nobody_waits_for_is_no_deadlock() -> None:
    with limited(threads=1, deadlock_timeout_s=0.2) as server:
        # The main thread waits for a signal, and nobody else is there.
        assert server.get("/wait_for_rest").body == b"rests\n"
        assert server.get("/wedge?1").body == b"never\n"
        assert server.has_no_event()


def test_what_waits_too_long_for_a_thread_is_answered_504() -> None:
    with limited(threads=1, queue_timeout_s=1) as server, contextlib.ExitStack() as open_ones:
        kept = [open_ones.enter_context(server.connect()) for _ in range(5)]
        for connection in kept:
            send(connection, "/hello")
            assert read_response(connection).body == b"hello\n"
        open_ones.enter_context(keep_the_only_thread(server))
        for connection in kept:
            send(connection, "/hello")
        answers = [read_response(connection) for connection in kept]
        assert [answer.status for answer in answers] == [504] * 5
        assert answers[0].headers["connection"] == "close"


def keep_the_only_thread(server: Limited) -> socket.socket:
    """A connection whose request sleeps; asked again if it was late itself, on a busy machine."""
    while True:
        connection = server.send("/sleep?600")
        while not is_readable(connection):
            if "asleep\n" in server.stderr:
                return connection
            time.sleep(0.01)
        connection.close()


def test_accepting_goes_on_once_the_application_gives_descriptors_back() -> None:
    with limited(threads=2, descriptors=64) as server, server.connect() as kept:
        send(kept, "/take_descriptors")
        assert read_response(kept).body == b"none left\n"
        # Accepted by the kernel, while the server has no descriptor for it.
        with server.send("/hello") as waiting:
            send(kept, "/hello")
            assert read_response(kept).body == b"hello\n"
            send(kept, "/give_back")
            assert read_response(kept).body == b"given back\n"
            assert read_response(waiting).body == b"hello\n"
        said = server.end()
        assert re.search(r"new connections wait until others are closed \(open: 1\): .*24", said)
        # Again and again it had none to give.
        assert said.count("new connections wait") == 1


def test_half_sent_heads_give_way_when_descriptors_run_out() -> None:
    with limited(threads=2, descriptors=64) as server, contextlib.ExitStack() as stack:
        kept = stack.enter_context(server.connect())
        send(kept, "/hello")
        assert read_response(kept).body == b"hello\n"
        partial = [stack.enter_context(server.connect()) for _ in range(150)]
        for connection in partial:
            connection.sendall(b"GET /hello HTTP/1.1\r\nHo")
        assert server.get("/hello").body == b"hello\n"
        # The rest keeps its connections: `head-timeout` is far away.
        closed = [is_readable(connection) for connection in partial]
        assert any(closed)
        assert not all(closed)
        assert not is_readable(partial[-1])
        partial[-1].sendall(b"st: a\r\n\r\n")
        assert read_response(partial[-1]).body == b"hello\n"
        send(kept, "/hello")
        assert read_response(kept).body == b"hello\n"
        said = server.end()
    assert re.fullmatch(
        r"(?:.*new connections wait until others are closed .*\n)?"
        r".*\d connections? (?:was|were) closed before a complete request came, to make room for "
        rf"new ones \(open: \d+\): {TOO_MANY_OPEN_FILES} \(os error 24\)\n",
        said,
    ), said


@pytest.mark.parametrize("seconds_apart", [0, 0.01])
def test_a_client_that_goes_away_ends_its_stream(seconds_apart: float) -> None:
    with limited(threads=2) as server:
        with server.send(f"/endless?{seconds_apart}") as connection:
            # Without pauses the server soon waits for room to write, else for the next block.
            assert connection.recv(100)
        assert server.get("/endless_was_closed").body == b"closed\n"


def test_a_client_that_does_not_read_keeps_a_thread_no_longer_than_the_write_timeout() -> None:
    limits = HttpLimits(write_timeout_s=0.3)
    with limited(threads=2, http=limits) as server, server.send("/endless") as connection:
        assert server.get("/endless_was_closed").body == b"closed\n"
        response = read_to_end(connection)
        assert b"Transfer-Encoding: chunked\r\n" in response
        assert not response.endswith(b"\r\n0\r\n\r\n"), "it must not look complete"


def test_the_request_timeout_grows_with_the_threads() -> None:
    assert request_timeout_s(ProcessGroup(threads=1, request_timeout_s=10)) == 10
    assert round(request_timeout_s(ProcessGroup(threads=25, request_timeout_s=10)), 1) == 42.2


def test_jitter_lets_processes_end_at_different_times() -> None:
    group = ProcessGroup(maximum_requests=1000, maximum_requests_jitter=100)
    drawn = {native_limits(group, -1)["maximum_requests"] for _ in range(200)}
    assert min(drawn) >= 1000
    assert max(drawn) <= 1100
    assert len(drawn) > 10
    none = native_limits(
        ProcessGroup(maximum_requests_jitter=100, deadlock_timeout_s=0, shutdown_timeout_s=0), -1
    )
    assert none == NO_LIMITS


def test_the_thread_that_interrupts_requests_is_waited_for_and_is_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long it waits for a GIL."""
    has_gil = threading.Event()

    def interrupt(_: object) -> bool:
        has_gil.wait(TIMEOUT_S)
        return False

    monkeypatch.setattr(_native, "server_interrupt", interrupt)
    monkeypatch.setattr(serving, "ABORT_TIMEOUT_S", 0.1)
    group = ProcessGroup(threads=1, request_timeout_s=60, interrupt_timeout_s=60)
    listener = bind(Address("127.0.0.1", 0))
    server = Server(None, [listener], group, limits=native_limits(group, -1))
    server.start()
    server.stop()
    assert server.join(TIMEOUT_S) == 0
    (interrupter,) = (each for each in threading.enumerate() if "interrupter" in each.name)
    threading.Timer(0.2, has_gil.set).start()
    server.end_interrupter()
    assert not interrupter.is_alive()
