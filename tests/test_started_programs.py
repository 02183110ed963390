"""Programs that Headway starts: what they say, and that they end whatever comes between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.programs import processes, signals
from headway.programs.process_tree import tree
from headway.programs.processes import ProgramError, started


def script(folder: Path, text: str) -> Path:
    path = folder / "odd.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('Welcome!\\x1b[2J')", 'said "Welcome!\\x1b[2J", which is no answer'),
        (
            "import sys; sys.exit('\\x1b[2Jout of luck')",
            "ended; the last that it said: \\x1b[2Jout of luck",
        ),
        ("", "ended; the last that it said: nothing"),
    ],
)
def test_what_is_no_answer_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    command = [sys.executable, str(script(tmp_path, text))]
    with pytest.raises(ProgramError) as caught, started(command, "it") as odd:
        odd.answer()
    assert str(caught.value) == f"it {said}"


def test_a_program_that_cannot_be_started_is_one_line() -> None:
    with (
        pytest.raises(ProgramError, match=r"^it cannot be started: no such file or directory$"),
        started(["/nonexistent"], "it"),
    ):
        pass


@pytest.fixture
def interruptible() -> Iterator[None]:
    # A shell that starts pytest in the background has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_waits_for_what_has_to_be_whole() -> None:
    done = []

    def do_whole() -> None:
        with signals.held():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        do_whole()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_amid_a_start_ends_what_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_interrupted(*arguments: object, **options: Any) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        made.append(popen(*arguments, **options))
        return made[-1]

    made: list[Any] = []
    popen: Any = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start_interrupted)

    def start() -> None:
        with started([sys.executable, "-c", "input()"], "it"):
            made.append("never")

    with pytest.raises(KeyboardInterrupt):
        start()
    (process,) = made
    assert process.returncode is not None


@pytest.mark.usefixtures("interruptible")
def test_a_key_that_was_pressed_twice_is_pressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in (*signals.ENDING, signal.SIGCONT)}
    try:
        signals.watch()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.setattr(signals, "TWICE_S", 0.0)
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 128 + signal.SIGTERM
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
def test_a_second_interruption_leaves_nobody_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a program that heeds neither the end of its stdin nor SIGTERM."""
    monkeypatch.setattr(processes, "PATIENCE_S", 0.3)
    path = script(
        tmp_path,
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('{}', flush=True)\n"
        "while True: time.sleep(60)\n",
    )
    before = set(tree(os.getpid()))
    second = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    ended = []

    def interrupt_twice() -> None:
        with started([sys.executable, str(path)], "stubborn") as stubborn:
            ended.append(stubborn.process)
            stubborn.answer()
            second.start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    second.join()
    assert ended[0].returncode == -signal.SIGKILL
    assert set(tree(os.getpid())) == before
