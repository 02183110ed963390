"""The statements of the page about Celery."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from launch import report_in
from recipe_list import named
from recipe_run import Tool, reports, running_client
from recipe_tool import ROOT, tool_of

pytestmark = pytest.mark.slow("starts Celery and Valkey")

CELERY = named("celery")
TIMEOUT_S = 60

# Sends more heavy tasks than the worker has received when the first one has ended.
SEND = """
import sys
from celery_tasks import app, heavy
app.conf.update(broker_url=sys.argv[1], result_backend=sys.argv[1])
[heavy.delay() for _ in range(12)][0].get(timeout=60)
"""


def send_heavy_tasks(tool: Tool) -> None:
    command = [tool.place.bin / "python", "-c", SEND, f"redis://127.0.0.1:{tool.port}"]
    subprocess.run(command, cwd=ROOT / "examples" / "recipes", check=True, timeout=TIMEOUT_S)


def test_the_report_follows_the_warm_shutdown() -> None:
    recipe = CELERY._replace(command=f"{CELERY.command} --loglevel INFO")
    with tool_of(recipe, "priority,report") as tool:
        send_heavy_tasks(tool)
        assert tool.stop() == 0, tool.output()
        output = tool.output()
    log, _, report = output.partition("\nheadway  Python ")
    assert "Warm shutdown" in log
    # Each task that a thread has begun ends, and the broker gets the others back.
    returned = sum(map(int, re.findall(r"Restoring (\d+) unacknowledged message", log)))
    assert log.count(" succeeded in ") + returned == log.count(" received") >= 1, log
    assert report_in(output).endswith(report)
    assert "policy priority" in report
    assert "MainThread" in report
    assert "ThreadPoolExecutor" in report


def test_a_detached_worker_follows(tmp_path: Path) -> None:
    pid_file = tmp_path / "worker.pid"
    options = f"--detach --pidfile={pid_file} --logfile={tmp_path / 'worker.log'}"
    recipe = CELERY._replace(command=f"{CELERY.command} {options}")
    with tool_of(recipe, "priority,follow", reports=True) as tool:
        assert tool.wait() == 0, tool.output()
        try:
            with running_client(recipe, tool.place) as client:
                assert client.latencies()["heavy_per_s"] >= 0
        finally:
            end(pid_file)
        (worker,) = (each for each in reports(tool.place) if len(each.threads) > 1)
        assert worker.policy == "priority"


def end(pid_file: Path) -> None:
    """Ends the worker, whose file goes at its very end."""
    pid = int(pid_file.read_text())
    os.kill(pid, signal.SIGTERM)
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        # Its parent is gone, so that it may be this process that waits for it.
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the worker has not ended at SIGTERM")
