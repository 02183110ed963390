"""The recorder at a real socket: what comes in, from whom, and what hostile datagrams do, which is
to be counted."""

from __future__ import annotations

import errno
import os
import random
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from process_tree import open_files
from recorded import Recorded
from ticks import SLOW, START, STARTED, Bench, message, requests, tick

from headway import _native
from headway.errors import CommandError
from headway.recorder.query.history import History
from headway.recorder.receive import live
from headway.recorder.receive.datagrams import DatagramReceiver
from headway.recorder.receive.receiver import Recorder
from headway.recorder.store import store
from headway.recorder.store.reading import Reader
from headway.recorder.store.selection import EVERYTHING
from headway.recorder.store.store import Store
from headway.report import columns

TIMEOUT_S = 30
DATAGRAMS = sorted((Path(__file__).parent / "datagrams").glob("*.bin"))


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


class Service:
    """A recorder with everything, and a socket to send to it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "in.sock")
        self.store = Store(str(folder / "store.sqlite"))
        self.lines: list[str] = []
        self.recorder = Recorder(
            DatagramReceiver(self.path, 0o660, None), self.store, tell=self.lines.append
        )
        self.history = History(
            self.recorder.live,
            self.recorder.known,
            Reader(self.store.path),
            health=self.recorder.health,
            store_is_well=lambda: not self.store.error,
        )
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sent = 0
        self.recorder.start()

    def send(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self.socket.sendto(datagram, self.path)
            self.sent += 1

    def settle(self) -> dict[str, Any]:
        wait_until(lambda: self.history.health()["received"] == self.sent)
        health: dict[str, Any] = self.history.health()
        return health

    def stop(self) -> None:
        self.socket.close()
        self.recorder.stop()
        self.history.close()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(store, "COMMIT_INTERVAL_S", 0.1)
    service = Service(tmp_path)
    yield service
    service.stop()


def test_what_is_sent_is_recorded(service: Service) -> None:
    now = time.time()
    service.send(*(tick(os.getpid(), n, now + n / 1000) for n in range(1, 201)))
    assert service.settle()["malformed"] == 0
    assert requests(service.history.record(now, now + 1, EVERYTHING)) == 2000
    (process,) = service.history.processes()
    assert (process.host, process.pid, process.alive) == ("alpha", os.getpid(), True)
    # The kernel says so too.
    (sender,) = service.recorder.known()
    assert sender.pid_confirmed is True


def test_another_pid_than_the_senders_is_noted(service: Service) -> None:
    service.send(tick(1, 1, time.time()))
    service.settle()
    (sender,) = service.recorder.known()
    assert sender.pid_confirmed is False


@pytest.mark.parametrize("path", DATAGRAMS, ids=lambda path: path.stem)
def test_datagrams_of_a_real_mod_wsgi(service: Service, path: Path) -> None:
    service.send(path.read_bytes())
    health = service.settle()
    assert (health["malformed"], health["refused"], health["processes"]) == (0, 0, 1)


def malformed() -> dict[str, bytes]:
    good = tick(7, 1, time.time())
    started = message(STARTED, 7, 1, time.time(), hostname="alpha")
    return {
        "empty": b"",
        "short": good[:20],
        "no magic": b"HTTP" + good[4:],
        "version": good[:4] + b"\x02" + good[5:],
        "unknown kind": good[:5] + b"\x63" + good[6:],
        "unused kind": good[:5] + b"\x01" + good[6:],
        "cut in a field": good[:-3],
        "cut in a name": started[:-2],
        "endless length": started + b"\x05\x00\x04\xff\xff",
        "unknown type": started + b"\x05\x00\x4d\x00",
        "no time": good[:16] + b"\xff" * 8 + good[24:],
        "too large": good + 2 * (b"\x01\x05\x04\x00\xf0" + bytes(0xF000)),
        "text": b"WSGI" * 500,
        "zeros": bytes(2000),
    }


@pytest.mark.parametrize("what", malformed())
def test_malformed_datagrams_are_counted_and_dropped(service: Service, what: str) -> None:
    service.send(malformed()[what])
    service.send(tick(7, 1, time.time()))
    health = service.settle()
    assert (health["received"], health["malformed"], health["processes"]) == (2, 1, 1)
    assert sum(service.recorder.malformed.values()) == 1
    assert requests(service.history.record(time.time() - 60, time.time() + 1, EVERYTHING)) == 10


def test_a_datagram_larger_than_any(service: Service) -> None:
    service.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 400_000)
    service.send(tick(7, 1, time.time()) + bytes(100_000))
    service.send(tick(7, 2, time.time()))
    health = service.settle()
    assert health["malformed"] == 1
    assert dict(service.recorder.malformed) == {"oversized": 1}


def test_descriptors_in_datagrams_are_closed(tmp_path: Path) -> None:
    recorder = Recorded(tmp_path)
    try:
        sent = tmp_path / "sent"
        with (
            sent.open("w") as file,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.connect(recorder.socket)
            before = len(os.listdir(f"/proc/{recorder.process.pid}/fd"))
            for n in range(1, 51):
                socket.send_fds(sender, [tick(os.getpid(), n, time.time())], [file.fileno()] * 4)
            recorder.wait_until_received(50)
            found = open_files(recorder.process.pid)
            assert str(sent) not in found.values()
            # The API has opened connections to the store meanwhile.
            assert len(found) < before + 50
        assert recorder.ask("now")["recorder"]["malformed"] == 0
    finally:
        recorder.stop()


def test_a_field_that_comes_twice_is_malformed(service: Service) -> None:
    """Many values of a setting would be a list of any length in the identity of the process."""
    good = tick(7, 1, time.time(), policy="priority")
    # Field 1002 is the policy.
    again = b"\xea\x03\x04\x08\x00deadline"
    service.send(good + again, good + 5_000 * again, good)
    assert service.settle()["malformed"] == 2
    assert dict(service.recorder.malformed) == {"field N comes twice": 2}
    (sender,) = service.recorder.known()
    assert sender.identity["policy"] == "priority"


def test_a_datagram_that_the_recorder_fails_to_process_ends_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while it is read nor afterwards, with others."""
    identify = service.recorder.senders.identify
    add = service.recorder.totals.add

    def fail_for_one(kind: int, pid: int, *rest: Any) -> Any:
        if pid == 13:
            raise RuntimeError("a defect\n\x1b[2J")
        return identify(kind, pid, *rest)

    def fail_once(ticks: Any) -> None:
        monkeypatch.setattr(service.recorder.totals, "add", add)
        raise LookupError("another")

    monkeypatch.setattr(service.recorder.senders, "identify", fail_for_one)
    now = time.time()
    service.send(tick(13, 1, now), tick(7, 1, now), tick(13, 2, now))
    assert service.settle()["malformed_by_reason"] == {"internal error": 2}
    monkeypatch.setattr(service.recorder.totals, "add", fail_once)
    service.send(tick(7, 2, now))
    wait_until(lambda: service.history.health()["malformed"] == 3)
    service.send(tick(7, 3, now))
    service.settle()
    assert [sender.sequence for sender in service.recorder.known()] == [3]
    (line,) = service.lines
    assert line.startswith("a datagram could not be processed (")
    assert line.isprintable()
    assert "RuntimeError: a defect" in line


def test_reception_goes_on_after_an_error(service: Service) -> None:
    """Of the socket itself, for which a file stands in for a while."""
    descriptor = service.recorder._datagrams.socket.fileno()
    kept = os.dup(descriptor)
    try:
        now = time.time()
        with open(os.devnull, "rb") as file:
            os.dup2(file.fileno(), descriptor)
        # The thread still waits for the socket.
        service.send(tick(7, 1, now))
        wait_until(lambda: service.lines)
        os.dup2(kept, descriptor)
    finally:
        os.close(kept)
    service.send(tick(7, 2, now))
    service.settle()
    assert [sender.sequence for sender in service.recorder.known()] == [2]
    failed, again = service.lines
    assert failed.startswith("nothing can be received (")
    assert failed.endswith(
        f"OSError: [Errno 88] {os.strerror(errno.ENOTSOCK)}); it is tried again every 1 s"
    )
    assert again == "datagrams are received again"


def test_events_are_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bytes of their texts; of their other fields, only numbers are kept."""
    monkeypatch.setattr(live, "MAX_EVENT_BYTES", 500_000)
    bench = Bench(None)
    for n in range(1, 101):
        slow = message(
            SLOW,
            *(7, n, START),
            slow_start_stamp=START - n,
            slow_stack="x" * 20_000,
            slow_log_id="y" * 5_000,
            server_time_buckets=[1000] * 2_000,
        )
        # A field that no version knows.
        bench.give(slow + b"\x50\x13\x01" + bytes(8))
    found = bench.history.events("slow", START - 200, START + 1, EVERYTHING, 1000)
    assert [START - each["time"] for each in found] == list(range(83, 101))
    assert all("server_time_buckets" not in each and "id4944" not in each for each in found)
    assert all(len(key) < 1000 for _, _, key in bench.recorder.live._events)
    bench.stop()


def test_any_bytes_at_all(service: Service) -> None:
    """Mutations of good datagrams, the same ones every time: none ends the recorder, and what
    passes for good breaks nothing behind it either."""
    choose = random.Random(6)
    good = [path.read_bytes() for path in DATAGRAMS] + [tick(7, 1, time.time())]
    for _ in range(3000):
        datagram = bytearray(choose.choice(good))
        for _ in range(choose.randrange(1, 8)):
            place = choose.randrange(len(datagram))
            datagram[place] = choose.randrange(256)
        service.send(bytes(datagram[: choose.randrange(1, len(datagram) + 1)]))
    health = service.settle()
    assert health["malformed"] > 0
    end = time.time() + 100
    service.history.record(end - 90_000, end, EVERYTHING)
    service.history.per_process(end - 90_000, end, EVERYTHING)
    service.history.slots(end - 600, end, 10, EVERYTHING)
    for kind in ("slow", "lifecycle", "gc", "hold"):
        service.history.events(kind, end - 90_000, end, EVERYTHING, 10_000)
    before = service.history.health()["received"]
    service.send(tick(os.getpid(), 2, time.time()))
    assert service.settle()["received"] == before + 1
    wait_until(lambda: service.store.health()["waiting"] == 0)
    assert service.store.error == ""


def test_names_are_only_names(service: Service) -> None:
    """Names come back as they are, whatever is in them, except for control characters."""
    names = ["</script><script>alert(1)</script>", "'; DROP TABLE tick; --", "\x1b[2J", "a\0b", "ü"]
    now = time.time()
    service.send(
        *(tick(pid, 1, now, hostname=name, process_group=name) for pid, name in enumerate(names))
    )
    service.settle()
    wait_until(lambda: service.store.health()["waiting"] == 0)
    shown = {columns.printable(name) for name in names}
    assert {each.group for each in service.history.processes()} == shown
    rows = service.history.per_process(now - 200, now + 1, EVERYTHING)
    assert {process.host for process, _ in rows} == shown


def test_many_events_of_one_process_leave_room_for_others(service: Service) -> None:
    now = time.time()
    for n in range(1, 400):
        service.send(
            _native.telemetry_encode(
                9, 7, n, now, {"gc_event_start_stamp": now - n / 1000, "gc_event_duration": 0.0001}
            )
        )
    service.send(_native.telemetry_encode(9, 8, 1, now, {"gc_event_duration": 0.5}))
    health = service.settle()
    assert health["short_collections_left_out"] > 100
    assert health["events_left_out"] == 0
    found = service.history.events("gc", now - 10, now + 1, EVERYTHING, 1000)
    assert {each["pid"] for each in found} == {7, 8}


def test_the_socket_is_for_its_group(tmp_path: Path) -> None:
    path = tmp_path / "in.sock"
    datagrams = DatagramReceiver(str(path), 0o620, None)
    found = path.stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o620
    datagrams.close()
    assert not path.exists()
    if os.geteuid() == 0:
        datagrams = DatagramReceiver(str(path), 0o660, "12345")
        assert path.stat().st_gid == 12345
        datagrams.close()
    with pytest.raises(CommandError, match="no such group"):
        DatagramReceiver(str(path), 0o660, "no such group")


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "in.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(path))
    DatagramReceiver(str(path), 0o660, None).close()


def test_a_socket_that_somebody_listens_on_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "in.sock")
    datagrams = DatagramReceiver(path, 0o660, None)
    with pytest.raises(CommandError, match="somebody listens there already") as caught:
        DatagramReceiver(path, 0o660, None)
    assert caught.value.exit_code == 2
    # And is not disturbed.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", path)
    assert datagrams.socket.recv(10) == b"x"
    datagrams.close()


@pytest.mark.parametrize("is_listening", [False, True])
def test_a_servers_socket_is_left_alone(tmp_path: Path, is_listening: bool) -> None:
    path = str(tmp_path / "in.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        if is_listening:
            server.listen()
        with pytest.raises(CommandError, match="somebody listens there already"):
            DatagramReceiver(path, 0o660, None)
    assert os.path.exists(path)


def test_a_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "in.sock"
    path.write_text("dear diary")
    with pytest.raises(CommandError, match="it is no socket"):
        DatagramReceiver(str(path), 0o660, None)
    assert path.read_text() == "dear diary"


def test_a_recorders_socket_of_another_recorder_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "in.sock"
    first = DatagramReceiver(str(path), 0o660, None)
    path.unlink()
    second = DatagramReceiver(str(path), 0o660, None)
    first.close()
    assert path.exists()
    second.close()


def test_other_processes_report(service: Service, tmp_path: Path) -> None:
    """As many as there are: each its own."""
    send = (
        "import sys, os, time; sys.path.insert(0, sys.argv[1]); from ticks import *; import socket;"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM);"
        "[s.sendto(tick(os.getpid(), n, time.time()), sys.argv[2]) for n in range(1, 51)]"
    )
    here = str(Path(__file__).parent)
    children = [
        subprocess.Popen([sys.executable, "-c", send, here, service.path]) for _ in range(3)
    ]
    for child in children:
        assert child.wait(TIMEOUT_S) == 0
    service.sent = 150
    service.settle()
    rows = service.history.per_process(time.time() - 60, time.time() + 1, EVERYTHING)
    assert {(process.pid, requests(record)) for process, record in rows} == {
        (child.pid, 500) for child in children
    }
