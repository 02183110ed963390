"""Leftovers of a test: processes, threads, descriptors, files, and changes of the test process.

`tests/conftest.py` asks after every test, when the test's own fixtures have ended. What a fixture
of a module or of the run has started is older than the test, and is asked about at the end of the
run.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from process_tree import Watched, children, descendants, described, state

# For what is just ending: a thread that has been joined, a worker whose server has been killed.
LIMIT_S = 5 * float(os.environ.get("HEADWAY_TEST_SLOWNESS", "1"))
# pytest sets the variable for each phase of a test, and pytest-timeout the signal's handler.
VARIABLE, ALARM = "PYTEST_CURRENT_TEST", signal.SIGALRM
# Files that other programs leave: browsers, Valkey, Dask, Jupyter, a pytest within a test, and the
# example shop, if a signal ends its import.
FOREIGN_FILES = re.compile(
    r"dconf|shop-\w+|\.org\.chromium.*|playwright.*|valkey-\w+|dask-scratch-space|tmp\w+_kernels|pytest-of-\w+"
)
SIGNALS = sorted(signal.valid_signals() - {ALARM})


@dataclass(frozen=True)
class Snapshot:
    processes: set[int]
    threads: set[int]
    descriptors: set[tuple[str, str]]
    files: set[str]
    settings: dict[str, Any]


def snapshot(folders: tuple[Path, ...]) -> Snapshot:
    return Snapshot(children("self"), _threads(), _descriptors(), _files(folders), _settings())


def found(before: Snapshot, folders: tuple[Path, ...]) -> Iterator[str]:
    """One line for each thing that there is and was not `before`. Ends such processes and removes
    such files, so that the next test does not have them."""
    yield from left_by_fixtures(before, folders)
    for tid in _until_none(lambda: _threads() - before.threads):
        # Playwright's event loop keeps its executor.
        if not (name := _name_of_thread(tid)).startswith("asyncio_"):
            yield f"thread {tid} ({name})"
    if _descriptors() - before.descriptors:
        gc.collect()
        for number, target in sorted(_until_none(lambda: _descriptors() - before.descriptors)):
            yield f"descriptor {number} ({target})"
    for (name, was), now in zip(before.settings.items(), _settings().values(), strict=True):
        if was != now:
            yield f"{name}: {_difference(was, now)}"


def left_by_fixtures(before: Snapshot, folders: tuple[Path, ...]) -> Iterator[str]:
    """Of these alone: the processes and files that were not there `before`."""
    yield from _processes_left(before.processes)
    for path in sorted(_files(folders) - before.files):
        if _is_of_tempfile(path):
            os.unlink(path)
            continue
        yield f"file {path}"
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _is_of_tempfile(path: str) -> bool:
    """Whether a process was killed while `tempfile` tried whether it can write to the folder."""
    if not re.fullmatch(r"[a-z0-9_]{8}", os.path.basename(path)) or not os.path.isfile(path):
        return False
    return Path(path).read_bytes() in (b"", b"blat")


def _processes_left(before: set[int]) -> list[str]:
    end = time.monotonic() + LIMIT_S
    while True:
        left = descendants("self", without=before)
        # The parent is gone, and this process is the one that has to wait for it. What a test has
        # started itself and not waited for is a ResourceWarning of subprocess.
        for pid in [each for each in left if state(each) in ("Z", "")]:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            left.discard(pid)
        if not left:
            return []
        with Watched(left) as watched:
            still = watched.wait(end - time.monotonic())
            if not still:
                continue
            said = [f"process {described(pid)}" for pid in sorted(still)]
            for pid in still:
                watched.kill(pid)
            watched.wait(LIMIT_S)
        for pid in still:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return said


def _until_none(found: Callable[[], set[Any]]) -> set[Any]:
    end = time.monotonic() + LIMIT_S
    while (left := found()) and time.monotonic() < end:
        time.sleep(0.001)
    return left


def _threads() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


def _name_of_thread(tid: int) -> str:
    for thread in threading.enumerate():
        if thread.native_id == tid:
            return thread.name
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/self/task/{tid}/comm").read_text().strip()
    return "gone"


def _descriptors() -> set[tuple[str, str]]:
    open_ones = set()
    for number in os.listdir("/proc/self/fd"):
        # One of them is that of the listing.
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{number}")
            # matplotlib keeps the file of a font open.
            if not target.startswith(sys.prefix):
                open_ones.add((number, target))
    return open_ones


def _files(folders: tuple[Path, ...]) -> set[str]:
    return {
        entry.path
        for folder in folders
        for entry in os.scandir(folder)
        if not FOREIGN_FILES.fullmatch(entry.name)
    }


def _settings() -> dict[str, Any]:
    wakeup = signal.set_wakeup_fd(-1)
    if wakeup != -1:
        signal.set_wakeup_fd(wakeup)
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "signal handlers": {number: signal.getsignal(number) for number in SIGNALS},
        "wakeup descriptor": wakeup,
        "signal mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "umask": umask,
        "working directory": os.getcwd(),
        "environment": {key: value for key, value in os.environ.items() if key != VARIABLE},
    }


def _difference(was: Any, now: Any) -> str:
    if isinstance(was, dict):
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        return ", ".join(f"{key} {was.get(key)!r} -> {now.get(key)!r}" for key in keys)
    return f"{was!r} -> {now!r}"


@contextmanager
def folders_of_the_run(folder: Path) -> Iterator[tuple[Path, ...]]:
    """Has this process and its children keep temporary files below `folder`, where nobody else
    does."""
    import tempfile

    temporary, runtime = folder / "tmp", folder / "run"
    for each in (temporary, runtime, runtime / "headway"):
        each.mkdir(mode=0o700)
    changes = {"TMPDIR": str(temporary), "XDG_RUNTIME_DIR": str(runtime)}
    former = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    tempfile.tempdir = None
    try:
        yield temporary, runtime, runtime / "headway"
    finally:
        tempfile.tempdir = None
        for key, value in former.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
