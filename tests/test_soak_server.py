"""A cut of scripts/soak_server.py, and what its judgements let pass."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launch import environment, python

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SOAK = SCRIPTS / "soak_server.py"
sys.path.insert(0, str(SCRIPTS))
try:
    from soak_client import Client, check
    from soak_conversation import Address, Conversation, Exhausted, Missing, Stuck, Wrong
    from soak_crowd import Crowd, Failure
    from soak_growth import growth
    from soak_processes import Sample, connections, unix_connections
    from soak_server import judge_beside_new, judge_count
    from soak_site import text_of
    from soak_subject import Casualties, SoakFailure
    from soak_visits import one_request
finally:
    sys.path.remove(str(SCRIPTS))

# The visits that a short run is sure to make.
OFTEN = ("keep_alive", "one_request", "pipelined", "slow_writer", "half_closed", "sized_upload")
OFTEN += ("chunked_upload", "awaited_upload", "download", "malformed", "failing", "heavy")


@pytest.mark.timeout(400)
@pytest.mark.free_threading
@pytest.mark.slow("a soak")
@pytest.mark.serial
def test_everything_at_once_while_processes_are_killed_and_replaced() -> None:
    result = python(SOAK, "--minutes", "0.4", "--seed", "7946", timeout=350)
    assert result.returncode == 0, result.stderr
    rows = {
        name.strip().replace(" ", "_"): [int(count.replace(",", "")) for count in counts.split()]
        for name, counts in re.findall(r"^  ([a-z ]+?)((?: +[\d,]+){4})$", result.stdout, re.M)
    }
    assert all(rows[name][1] > 0 for name in OFTEN), result.stdout
    sent, answered, _, failed = rows["all"]
    assert failed == 0
    assert answered > 0.9 * sent
    kinds = dict(re.findall(r"(TCP|UNIX|TLS) ([\d,]+)", result.stdout))
    assert set(kinds) == {"TCP", "UNIX", "TLS"}, result.stdout
    done = dict(re.findall(r"(kill|hang up|exit|hoard) (\d+)", result.stdout))
    assert set(done) == {"kill", "hang up", "exit", "hoard"}, result.stdout


@pytest.mark.slow("a soak")
def test_ctrl_c_ends_the_server_too() -> None:
    with subprocess.Popen(
        [sys.executable, str(SOAK), "--minutes", "5"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            assert process.stderr.readline().startswith("soak: ")
            assert "soak: 1" in process.stderr.readline()
            (server,) = children.read_text().split()
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=100)[1]
        finally:
            process.kill()
    assert (process.returncode, said) == (130, "soak: interrupted\n")
    assert not Path(f"/proc/{server}").exists()


@contextmanager
def answering(answer: bytes) -> Iterator[Address]:
    """A server of one connection, with one answer."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address(listener.getsockname())
        finally:
            thread.join()


def visit(answer: bytes) -> None:
    with answering(answer) as address:
        one_request(Client([address], seed=1))


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", Missing),
        (OK[:9], Missing),
        (OK + b"Content-Length: 5\r\n\r\nab", Missing),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", Missing),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", Missing),
        (OK + b"\r\n", Missing),
        (OK + b"\r\nwrong", Wrong),
        (OK + b"Content-Length: 5\r\n\r\nwrong", Wrong),
        (OK + b"X-Token: another\r\nContent-Length: 5\r\n\r\nright", Wrong),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", Wrong),
        (b"nonsense\r\n\r\n", Wrong),
    ],
)
def test_no_other_answer_passes(answer: bytes, problem: type[Exception]) -> None:
    with pytest.raises(problem):
        visit(answer)


def test_an_answer_with_something_behind_it_is_wrong() -> None:
    answer = OK + b"Content-Length: 2\r\n\r\nab" + b"more"
    with answering(answer) as address, Conversation(address) as conversation:
        conversation.send(b"x")
        check(conversation.read_response(), "t", 200, b"ab")
        with pytest.raises(Wrong, match="more"):
            conversation.read_end()


def test_only_connections_of_a_killed_process_may_fail() -> None:
    casualties, closed = Casualties(), Missing("closed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(listener.getsockname())
        with Conversation(address) as its, Conversation(address) as another:
            casualties.add_death(99, {its.port})
            assert casualties.excuse(closed, its)
            assert not casualties.excuse(Stuck("open"), its)
            assert not casualties.excuse(Exhausted("no descriptors"), its)
            assert not casualties.excuse(closed, another)
            another.pid = 99
            assert casualties.excuse(closed, another)
        with Conversation(address) as later:
            later.pid = 99
            assert not casualties.excuse(closed, later)
            casualties.add_death(98, set(), blind_s=60)
            assert not casualties.excuse(closed, later), "it is another's"
            later.pid = None
            assert casualties.excuse(closed, later), "nobody knows whose it is"


def test_nobody_knows_whose_a_unix_socket_is_until_it_answers(tmp_path: Path) -> None:
    casualties, closed = Casualties(), Missing("closed")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with Conversation(Address(str(tmp_path / "socket"))) as conversation:
            assert not casualties.excuse(closed, conversation)
            casualties.add_death(99, set())
            assert casualties.excuse(closed, conversation)
            assert not casualties.excuse(Wrong("other bytes"), conversation)
            conversation.pid = 98
            assert not casualties.excuse(closed, conversation)
        with Conversation(Address(str(tmp_path / "socket"))) as later:
            assert not casualties.excuse(closed, later)


def test_only_a_process_without_descriptors_may_lack_them() -> None:
    casualties, exhausted = Casualties(), Exhausted("no descriptors")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        since_s = time.monotonic()
        with Conversation(Address(listener.getsockname())) as conversation:
            conversation.pid = 99
            assert not casualties.excuse(exhausted, conversation)
            casualties.add_hoard(98, since_s)
            assert not casualties.excuse(exhausted, conversation)
            casualties.add_hoard(99, since_s)
            assert casualties.excuse(exhausted, conversation)
            assert not casualties.excuse(Missing("closed"), conversation)
            conversation.pid = None
            assert casualties.excuse(Missing("closed"), conversation), "it made room"
        with Conversation(Address(listener.getsockname())) as later:
            assert not casualties.excuse(Missing("closed"), later)


def test_a_failure_counts_unless_it_is_allowed() -> None:
    casualties = Casualties()
    with answering(b"nonsense\r\n\r\n") as address:
        crowd = Crowd([address], casualties, seed=1, threads=0, rate=1)
        client = Client([address], seed=1)
        with pytest.raises(Wrong) as wrong:
            one_request(client)
    conversation = client.conversation
    assert conversation
    casualties.add_death(99, {conversation.port})
    crowd.note(Failure("one_request", Missing("closed"), conversation))
    assert crowd.judge() == []
    crowd.note(Failure("one_request", wrong.value, conversation))
    crowd.note(Failure("one_request", Stuck("nothing came"), conversation))
    assert [each.split(" (")[0] for each in crowd.judge()] == [
        "one_request: wrong: b'nonsense' is no status line",
        "one_request: stuck: nothing came",
    ]
    assert crowd.counts()["one_request"] == {"allowed to fail": 1, "failed": 2}


def samples(rss_of: object) -> list[Sample]:
    assert callable(rss_of)
    return [Sample(float(second), int(rss_of(second)), 9, 1) for second in range(0, 600, 2)]


def test_memory_that_grows_is_told_from_memory_that_jumps() -> None:
    leak = growth("worker", samples(lambda second: 20_000_000 + second * 20_000), 256)
    assert leak.is_judged
    assert leak.kb_per_min > leak.bound_kb_per_min
    jumps = growth("worker", samples(lambda s: 20_000_000 + (s % 40 == 0) * 10**8), 256)
    assert jumps.kb_per_min == 0
    filled = growth("worker", samples(lambda s: min(s, 150) * 100_000), 256)
    assert filled.kb_per_min == 0, "caches fill at first"
    assert not growth("worker", samples(lambda s: s)[:50], 256).is_judged


def test_counts_that_grow() -> None:
    judge_count("worker 1", Sample(0, 0, 9, 7), "at first", Sample(0, 0, 9, 7))
    with pytest.raises(SoakFailure, match="worker 1 has 10 descriptors, and 9 at first"):
        judge_count("worker 1", Sample(0, 0, 10, 7), "at first", Sample(0, 0, 9, 7))


def test_a_new_worker_may_be_starting_its_threads() -> None:
    seen = iter([Sample(0, 0, 9, threads) for threads in (4, 6, 7)])
    judge_beside_new("worker 1", Sample(0, 0, 9, 7), lambda: next(seen))
    assert next(seen, None) is None


def test_connections_that_a_process_has_not_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        me = int(Path("/proc/self").readlink().name)
        client = socket.create_connection(("127.0.0.1", port))
        accepted, (_, remote_port) = listener.accept()
        with accepted:
            client.close()
            while (seen := connections(me, [port])) and seen[0].state != "CLOSE_WAIT":
                time.sleep(0.01)
            assert [(each.remote_port, each.state) for each in seen] == [
                (remote_port, "CLOSE_WAIT")
            ]
        assert connections(me, [port]) == []


def test_unix_connections_that_a_process_has_not_closed(tmp_path: Path) -> None:
    path, me = str(tmp_path / "socket"), int(Path("/proc/self").readlink().name)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(path)
        listener.listen()
        client.connect(path)
        with listener.accept()[0]:
            assert unix_connections(me, path) == 1
            assert unix_connections(me, f"{path}.other") == 0
        assert unix_connections(me, path) == 0


def test_each_token_has_a_text_of_its_own() -> None:
    assert text_of("t1", 10) == b"t1\nt1\nt1\nt"
    assert text_of("t2", 10) != text_of("t1", 10)
