"""`leftovers` finds each kind of leftover, and `process_tree` how processes ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import leftovers
import pytest
from process_tree import Watched, descendants, state

# Starts a process that nobody waits for, tells its id, and ends.
LEAVES_AN_ORPHAN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=-3)
print(child.pid)
"""
HAS_A_CHILD = (
    f"{LEAVES_AN_ORPHAN}\nsys.stdout.flush(); sys.stdin.read(); child.{{end}}(); child.wait()"
)


def found_after(leave: object, folder: Path) -> list[str]:
    before = leftovers.snapshot((folder,))
    leave()  # type: ignore[operator]
    return list(leftovers.found(before, (folder,)))


def test_nothing_is_found_where_nothing_is_left(tmp_path: Path) -> None:
    assert found_after(lambda: None, tmp_path) == []


def test_an_orphan_is_named_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "LIMIT_S", 0.1)
    pids = []

    def leave() -> None:
        done = subprocess.run([sys.executable, "-c", LEAVES_AN_ORPHAN], stdout=-1, check=True)
        pids.append(int(done.stdout))

    (line,) = found_after(leave, tmp_path)
    assert line.startswith(f"process {pids[0]} (")
    assert "time.sleep(600); state S, in " in line
    assert state(pids[0]) == ""


def test_descriptors_files_and_settings_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "LIMIT_S", 0.01)
    opened = []

    def leave() -> None:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        (tmp_path / "headway-folder").mkdir()
        (tmp_path / "headway-folder" / "file").touch()
        monkeypatch.setenv("HEADWAY", "report")
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    try:
        found = found_after(leave, tmp_path)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        os.close(opened[0])
    assert found[:2] == [
        f"file {tmp_path / 'headway-folder'}",
        f"descriptor {opened[0]} ({os.devnull})",
    ]
    assert found[2].startswith("signal handlers: 10 ")
    assert found[3:] == ["environment: HEADWAY None -> 'report'"]
    assert list(tmp_path.iterdir()) == []


def test_a_thread_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "LIMIT_S", 0.01)
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, name="left behind")
    (line,) = found_after(thread.start, tmp_path)
    is_over.set()
    thread.join()
    assert line == f"thread {thread.native_id} (left behind)"


def tells_how_processes_end() -> bool:
    with subprocess.Popen(["sleep", "60"]) as process, Watched([process.pid]) as watched:
        process.kill()
        process.wait()
        return bool(watched.killed())


@pytest.mark.skipif(not tells_how_processes_end(), reason="Linux 6.15 and later tell it")
@pytest.mark.parametrize(("end", "killed"), [("kill", 1), ("terminate", 0)])
def test_a_grandchild_that_its_parent_kills_is_told(end: str, killed: int) -> None:
    command = [sys.executable, "-c", HAS_A_CHILD.format(end=end)]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(process.stdout.readline())
        with Watched(descendants(process.pid)) as watched:
            process.stdin.close()
            process.wait()
            assert watched.wait(leftovers.LIMIT_S) == set()
            assert len(watched.killed()) == killed
            assert list(watched.commands) == [child]
