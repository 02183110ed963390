"""Debian's Prometheus scrapes the recorder, and answers with percentiles like ours."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from real_load import Load
from recorded import Recorded
from served import Served

ROOT = Path(__file__).resolve().parent.parent.parent
# Where scripts/debian-packages unpacks it.
UNPACKED = ROOT / ".venvs" / "debian" / "usr" / "bin"
TIMEOUT_S = 40
REQUESTS = 400


def program(name: str) -> str | None:
    found = UNPACKED / name
    return str(found) if found.exists() else shutil.which(name)


pytestmark = pytest.mark.skipif(
    program("prometheus") is None or program("promtool") is None,
    reason="prometheus is missing: scripts/debian-packages",
)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A recorder whose server has served, and is silent since."""
    recorder = Recorded(tmp_path_factory.mktemp("scraped"))
    try:
        options = ("--telemetry", f"unix:{recorder.socket}", "--telemetry-interval", "0.5")
        with Served("telemetry_pages:app", *options, "--threads", "4") as server:
            Load(server.address[1], "/deadline", 4, REQUESTS)
            deadline = time.monotonic() + TIMEOUT_S
            while recorder.ask("summary?from=-600")["summary"]["requests"] < REQUESTS:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield recorder
    finally:
        recorder.stop()


def metrics(recorder: Recorded) -> str:
    with urlopen(f"{recorder.url}/metrics", timeout=TIMEOUT_S) as answer:
        text: str = answer.read().decode()
        return text


def test_promtool_finds_nothing_wrong_with_the_metrics(scraped: Recorded) -> None:
    words = [str(program("promtool")), "check", "metrics"]
    checked = subprocess.run(
        words, input=metrics(scraped), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stderr == ""


class Prometheus:
    def __init__(self, recorder: Recorded, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        target = recorder.url.removeprefix("http://")
        configuration = folder / "prometheus.yml"
        configuration.write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs:\n"
            f"  - {{job_name: headway, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
        words = [str(program("prometheus")), f"--config.file={configuration}"]
        words += [f"--storage.tsdb.path={folder / 'data'}"]
        words += [f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)

    def ask(self, expression: str) -> list[Any]:
        query = urlencode({"query": expression})
        try:
            with urlopen(
                f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=TIMEOUT_S
            ) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            assert self.process.poll() is None, "prometheus ended"
            return []

    def wait_for(self, expression: str) -> float:
        """The value of the only row that it answers with."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := self.ask(expression)):
            assert time.monotonic() < deadline, f"{expression}: no answer"
            time.sleep(0.3)
        (row,) = found
        return float(row["value"][1])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
