"""A recorder whose stderr nobody reads, or cannot be written, records and ends as any other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from launch import HEADWAY, environment
from test_recorder import wait_until
from test_telemetry_command import TIMEOUT_S, recorded
from ticks import send, tick

from headway.errors import CommandError


def full_pipe() -> tuple[int, ...]:
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    os.write(theirs, bytes(4096))
    return theirs, ours


def broken_pipe() -> tuple[int, ...]:
    ours, theirs = os.pipe()
    os.close(ours)
    return (theirs,)


def full_disk() -> tuple[int, ...]:
    return (os.open("/dev/full", os.O_WRONLY),)


@contextmanager
def recorder(
    folder: Path, make_stderr: Callable[[], tuple[int, ...]]
) -> Iterator[subprocess.Popen[bytes]]:
    """One that receives by now at a socket in `folder`."""
    descriptors = make_stderr()
    path = folder / "in.sock"
    process = subprocess.Popen(
        [*HEADWAY, "telemetry", "--no-http", "--listen", f"unix:{path}",
         "--store", str(folder / "store.sqlite")],
        env=environment(),
        stderr=descriptors[0],
    )  # fmt: skip
    try:
        wait_until(lambda: path.exists() or process.poll() is not None)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for each in descriptors:
            os.close(each)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("make_stderr", [full_pipe, broken_pipe, full_disk])
def test_it_ends_with_everything_committed(
    tmp_path: Path, make_stderr: Callable[[], tuple[int, ...]], number: int
) -> None:
    with recorder(tmp_path, make_stderr) as process:
        now = time.time()
        send(tmp_path / "in.sock", *(tick(7, n, now) for n in range(1, 101)))
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == 0
    assert not (tmp_path / "in.sock").exists()
    assert recorded(tmp_path / "store.sqlite") == 1000


@pytest.mark.parametrize("make_stderr", [full_pipe, broken_pipe, full_disk])
def test_its_store_is_written_again(
    tmp_path: Path, make_stderr: Callable[[], tuple[int, ...]]
) -> None:
    """It is the store's own thread that says so."""
    store, aside = tmp_path / "store.sqlite", tmp_path / "aside"
    with recorder(tmp_path, make_stderr) as process:
        now = time.time()
        send(tmp_path / "in.sock", tick(7, 1, now))
        wait_until(lambda: has_stored(store, 10))
        store.rename(aside)
        store.mkdir()
        wait_until(lambda: is_unlocked(tmp_path / "store.sqlite.lock"))
        send(tmp_path / "in.sock", *(tick(7, n, now) for n in range(2, 101)))
        store.rmdir()
        aside.rename(store)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    assert recorded(store) == 1000


def has_stored(store: Path, count: int) -> bool:
    # It may be as new as not to be readable.
    with suppress(CommandError):
        return recorded(store) == count
    return False


def is_unlocked(path: Path) -> bool:
    with path.open("r+") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
