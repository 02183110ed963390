"""More datagrams than a recorder can work on, from one sender: others are heard, the API answers,
and the recorder ends when it is asked to. What is refused is counted."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from heard import GC_EVENT, MARK, TICK, Ear
from recorded import Recorded
from test_recorder import Service, wait_until
from test_store import TEXTS
from ticks import tick

from headway import _native
from headway.recorder.store import schema, store
from headway.recorder.store.retention import used_bytes
from headway.recorder.store.selection import EVERYTHING

HERE = Path(__file__).parent
LONGEST_S = 60

# Sends what is in the files, with up to five bytes changed, until it is ended.
FLOOD = f"""
import random, socket, sys, time
from pathlib import Path
target, *paths = sys.argv[1:]
datagrams = [Path(path).read_bytes() for path in paths]
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.settimeout(1)
sender.connect(target)
print("begun", flush=True)
rng, end = random.Random(1), time.monotonic() + {LONGEST_S}
while time.monotonic() < end:
    datagram = bytearray(rng.choice(datagrams))
    for _ in range(rng.randint(0, 5)):
        datagram[rng.randrange(len(datagram))] = rng.randrange(256)
    try:
        sender.send(datagram)
    except (TimeoutError, BlockingIOError):
        continue
    except OSError:
        break
"""
PROGRAM = """
import gc, threading, time
def work():
    for _ in range(200):
        sum(range(2000)); gc.collect(0); time.sleep(0.005)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
# Sends ticks with its own pid. The arguments are the host, the socket and the number of ticks.
REPORT = f"""
import os, sys, time
sys.path.insert(0, {str(HERE)!r})
from ticks import send, tick
host, path, number = sys.argv[1:]
for sequence in range(1, int(number) + 1):
    send(path, tick(os.getpid(), sequence, time.time(), hostname=host))
"""
# 500 processes, each of which sends a tick.
PROCESSES = f"""
import os, sys, time
sys.path.insert(0, {str(HERE)!r})
from ticks import send, tick
for _ in range(500):
    pid = os.fork()
    if pid == 0:
        send(sys.argv[1], tick(os.getpid(), 1, time.time()))
        os._exit(0)
    os.waitpid(pid, 0)
"""

# 500 processes, each of which says as much about itself as fits, once and with settings repeated.
IDENTITIES = f"""
import os, sys, time
sys.path.insert(0, {str(HERE)!r})
from ticks import TICK, message, send
for _ in range(500):
    pid = os.fork()
    if pid == 0:
        pid = os.getpid()
        text = str(pid).ljust(255, chr(1))
        texts = {{name: text for name in {TEXTS!r}}}
        # Field 1002 is the policy.
        again = 190 * (b"\\xea\\x03\\x04\\xff\\x00" + text.encode())
        send(sys.argv[1], message(TICK, pid, 1, time.time(), **texts) + again)
        send(sys.argv[1], message(TICK, pid, 2, time.time(), **texts))
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.stop()


def record_datagrams(folder: Path) -> list[Path]:
    """Writes the datagrams of a real process under the meter, one file for each."""
    with Ear(folder) as ear:
        subprocess.run(
            [
                *(sys.executable, "-m", "headway", "run", "--telemetry", ear.target),
                *("-c", PROGRAM),
            ],
            check=True,
            capture_output=True,
            timeout=LONGEST_S,
        )
        ear.catch_up()
        raw = list(ear.raw)
    kinds = {_native.telemetry_parse(datagram)[0] for datagram in raw}
    assert {TICK, GC_EVENT} <= kinds
    paths = []
    for number, datagram in enumerate(raw):
        assert not datagram.startswith(MARK)
        paths.append(folder / f"{number}.bin")
        paths[-1].write_bytes(datagram)
    return paths


@contextlib.contextmanager
def flooded(recorder: Recorded, paths: list[Path]) -> Iterator[subprocess.Popen[str]]:
    flood = subprocess.Popen(
        [sys.executable, "-c", FLOOD, recorder.socket, *map(str, paths)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert flood.stdout is not None
        assert flood.stdout.readline() == "begun\n"
        yield flood
    finally:
        flood.kill()
        flood.communicate()


@pytest.mark.slow("keeps every processor busy")
def test_a_flood_of_changed_datagrams(tmp_path: Path) -> None:
    (tmp_path / "datagrams").mkdir()
    paths = record_datagrams(tmp_path / "datagrams")
    recorder = Recorded(tmp_path)
    try:
        with flooded(recorder, paths) as flood:
            wait_until(lambda: recorder.ask("now")["recorder"]["refused"] > 10_000)
            genuine = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headway", "run"),
                    *("--telemetry", f"unix:{recorder.socket}"),
                    *("-c", "import sys; sys.stdin.read()"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                wait_until(
                    lambda: (
                        genuine.pid in {each["pid"] for each in recorder.ask("now")["processes"]}
                    )
                )
            finally:
                genuine.communicate(timeout=LONGEST_S)
            now = recorder.ask("now")
            # However many processes the flood names, its sender is one.
            assert len(now["processes"]) < 200
            assert len(now["groups"]) < 40
            with urlopen(f"{recorder.url}/metrics", timeout=LONGEST_S) as answer:
                page = answer.read().decode()
            refused = re.search(r"^headway_recorder_refused_total (\d+)", page, re.MULTILINE)
            assert refused is not None
            assert int(refused[1]) > 10_000
            assert flood.poll() is None, "all of this was answered during the flood"
            assert recorder.stop() == 0
    finally:
        recorder.stop()


def test_genuine_datagrams_beyond_what_a_process_reports(service: Service) -> None:
    number = 5_000
    service.socket.settimeout(LONGEST_S)
    service.send(*(tick(os.getpid(), n, time.time()) for n in range(1, number + 1)))
    health = service.settle()
    refused = service.recorder.refused["rate"]
    assert refused > number // 2
    (sender,) = service.recorder.known()
    kept = service.recorder.live.ticks(0, 2.0**40)
    assert len(kept) + health["refused"] == number
    assert {each.sender for each in kept} == {sender}


def test_five_hundred_processes(service: Service) -> None:
    subprocess.run([sys.executable, "-c", PROCESSES, service.path], check=True, timeout=LONGEST_S)
    service.sent = 500
    health = service.settle()
    assert (health["refused"], health["malformed"], health["processes"]) == (0, 0, 500)
    now = time.time()
    assert len(service.history.per_process(now - 300, now + 1, EVERYTHING)) == 500


def test_identities_do_not_exceed_the_limit_of_the_store(tmp_path: Path) -> None:
    limit = 4 * 2**20
    recorder = Recorded(tmp_path, "--store-limit", "4M")

    def is_within() -> bool:
        with contextlib.closing(schema.connect_read_only(str(recorder.store))) as database:
            return used_bytes(database) <= limit

    try:
        subprocess.run(
            [sys.executable, "-c", IDENTITIES, recorder.socket], check=True, timeout=LONGEST_S
        )
        recorder.wait_until_received(1000)
        wait_until(lambda: recorder.ask("now")["recorder"]["store"]["waiting"] == 0)
        assert recorder.ask("now")["recorder"]["malformed"] == 500
        wait_until(is_within)
        spare = store.SPARE_PAGES * schema.PAGE_BYTES
        wait_until(lambda: recorder.store.stat().st_size <= limit + spare)
    finally:
        recorder.stop()


@pytest.fixture(name="container")
def _container() -> tuple[str, ...]:
    """The command prefix that runs a command in its own PID namespace, where its pid is 1."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    container = (unshare, "--pid", "--fork", "--kill-child")
    tried = subprocess.run([*container, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no PID namespace can be made: {tried.stderr.strip()}")
    return container


def report(container: tuple[str, ...], path: str, hosts: tuple[str, ...], number: int) -> None:
    for host in hosts:
        subprocess.run(
            [*container, sys.executable, "-c", REPORT, host, path, str(number)],
            check=True,
            timeout=LONGEST_S,
        )


def test_two_containers_below_the_recorder(service: Service, container: tuple[str, ...]) -> None:
    """The kernel attests pids of our namespace; both processes claim 1."""
    report(container, service.path, ("one", "two"), 5)
    service.sent = 10
    health = service.settle()
    assert (health["refused"], health["malformed"], health["sequence_gaps"]) == (0, 0, 0)
    found = {(each.host, each.pid, each.pid_confirmed) for each in service.recorder.known()}
    assert found == {("one", 1, False), ("two", 1, False)}
    first, second = [each.source for each in service.recorder.known()]
    assert first is not None
    assert first.is_attested
    assert first != second


def test_two_containers_beside_the_recorder(tmp_path: Path, container: tuple[str, ...]) -> None:
    """The kernel attests the pid 0 for both."""
    recorder = Recorded(tmp_path, launcher=container)
    try:
        report(container, recorder.socket, ("one", "two"), 5)
        recorder.wait_until_received(10)
        now = recorder.ask("now")
        assert {(each["host"], each["pid"]) for each in now["processes"]} == {
            ("one", 1),
            ("two", 1),
        }
        assert (now["recorder"]["refused"], now["recorder"]["malformed"]) == (0, 0)
        # The surplus of one container is refused, and the other is received.
        report(container, recorder.socket, ("one",), 6_000)
        recorder.wait_until_received(6_010)
        assert recorder.ask("now")["recorder"]["refused_by_reason"]["rate"] > 0
    finally:
        # unshare ends the recorder with itself.
        recorder.process.kill()
        recorder.end(None, kills=True)
