"""Signals belong to the program: no native thread of Headway can receive one, or the system call of
the thread that it is meant for would go on, as a `read()` after Ctrl-C."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from launch import GIL_ENABLED, TIMEOUT_S, headway
from process_tree import children
from served import Served

OURS = r"headway-(report|stacks|monitor|orphan)"
EXPECTED = {"headway-report", "headway-monitor"}
SHOWS = """
import threading, pathlib
for thread in pathlib.Path("/proc/self/task").iterdir():
    mask = (thread / "status").read_text().partition("SigBlk:")[2].split()[0]
    print((thread / "comm").read_text().strip(), mask)
"""


def receivable(mask: str) -> set[signal.Signals | int]:
    blocked = int(mask, 16)
    own = {signal.SIGKILL, signal.SIGSTOP}
    return {each for each in signal.valid_signals() - own if not blocked >> (each - 1) & 1}


@pytest.mark.skipif(not GIL_ENABLED, reason="there is no GIL to profile")
def test_threads_beside_a_program(tmp_path: Path) -> None:
    # The socket need not be there yet.
    options = ["--telemetry", f"unix:{tmp_path / 'nobody'}", "--profile", str(tmp_path / "p.txt")]
    result = headway("run", *options, "-c", SHOWS)
    lines = [line.split() for line in result.stdout.splitlines()]
    threads = {name: receivable(mask) for name, mask in lines if re.fullmatch(OURS, name)}
    assert threads == {"headway-report": set(), "headway-stacks": set()}


def test_threads_of_a_worker(tmp_path: Path) -> None:
    with Served("pages:hello", "--telemetry", f"unix:{tmp_path / 'nobody'}") as server:
        (worker,) = children(server.process.pid)
        deadline = time.monotonic() + TIMEOUT_S
        # A thread gives itself its name.
        while not (threads := named_threads(worker)).keys() >= EXPECTED:
            assert time.monotonic() < deadline, threads
            time.sleep(0.02)
    assert not any(threads.values()), threads


def named_threads(pid: int) -> dict[str, set[signal.Signals | int]]:
    """By the names of our threads: the signals that each can receive."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        name = (thread / "comm").read_text().strip()
        if re.fullmatch(OURS, name):
            mask = (thread / "status").read_text().partition("SigBlk:")[2].split()[0]
            found[name] = receivable(mask)
    return found
