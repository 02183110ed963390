"""A program of one thread forks in several ways. Prints CPython's warnings, and the names of the
threads that run afterwards."""

import itertools
import logging
import os
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path


def wait(pid: int) -> None:
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def through_c() -> None:
    """No Python code runs between the three forks. A child stops at the 0 that it gets."""
    pids = list(itertools.islice(iter(os.fork, 0), 3))
    if len(pids) < 3:
        os._exit(0)
    for pid in pids:
        os.waitpid(pid, 0)


def twice() -> None:
    """As a daemon does."""
    pid = os.fork()
    if pid == 0:
        wait(os.fork())
        os._exit(len(caught))
    assert os.waitpid(pid, 0)[1] == 0


def in_a_pty() -> None:
    pid, terminal = os.forkpty()
    wait(pid)
    os.close(terminal)


def count_to_ten_thousand() -> None:
    """Code of the program that runs during a fork, as that of logging does."""
    for _ in range(10_000):
        pass


ways: list[Callable[[], object]] = [
    lambda: wait(os.fork()),
    lambda: [wait(os.fork()) for _ in range(10)],
    through_c,
    twice,
    in_a_pty,
    lambda: subprocess.run(["true"], preexec_fn=count_to_ten_thousand, check=True),
]
os.register_at_fork(
    before=count_to_ten_thousand,
    after_in_parent=count_to_ten_thousand,
    after_in_child=count_to_ten_thousand,
)
logging.getLogger().addHandler(logging.StreamHandler())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for way in ways:
        way()
    print([str(warning.message) for warning in caught])
tasks = Path("/proc/self/task")
time.sleep(0.05)
print(sorted({(task / "comm").read_text().strip() for task in tasks.iterdir()}))
