"""A process that one call freezes, as the recorder shows it: meanwhile, and after it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from launch import GIL_ENABLED, PROGRAMS, environment
from recorded import Recorded
from started_program import TIMEOUT_S

pytestmark = pytest.mark.skipif(not GIL_ENABLED, reason="this interpreter runs without a GIL")


def ask_until(recorder: Recorded, is_there: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The first answer about the last seconds that has it."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer: dict[str, Any] = recorder.ask("now")
        if is_there(answer):
            return answer
        assert time.monotonic() < deadline, answer["total"]["verdict"]
        time.sleep(0.1)


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorded]:
    recorder = Recorded(tmp_path)
    yield recorder
    assert recorder.stop() == 0


def test_a_frozen_process_is_critical_while_it_is_frozen_and_after_a_kill(
    recorder: Recorded,
) -> None:
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "frozen" / "by_a_search.py")],
        env=environment(HEADWAY=f"telemetry=unix:{recorder.socket}"),
    )
    try:
        later = ask_until(recorder, lambda now: "and still does" in now["total"]["verdict"]["text"])
        verdict = later["total"]["verdict"]
        assert verdict["severity"] == "critical"
        assert verdict["title"] == "A thread keeps the GIL and has not let go"
        assert "worker has kept the GIL for " in verdict["text"]
        assert "called from search (by_a_search.py:10)" in verdict["text"]
        with urlopen(f"{recorder.url}/metrics", timeout=TIMEOUT_S) as answer:
            metrics = answer.read().decode()
        states = [line for line in metrics.splitlines() if line.startswith("headway_verdict{")]
        assert [line for line in states if line.endswith(" 1")] == [
            line for line in states if 'headway_verdict="long-hold"' in line
        ]
        # One event, which the reports of the same hold replace.
        (hold,) = recorder.ask("holders?from=-60")["holds"]
        assert (hold["thread"], hold["present"]) == ("worker", 1)
        assert hold["duration"] >= 1.0
    finally:
        program.kill()
        assert program.wait() == -signal.SIGKILL
    after = recorder.ask("summary?from=-60")["verdict"]
    assert (after["name"], after["severity"]) == ("long-hold", "critical")
