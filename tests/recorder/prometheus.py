"""Prometheus itself, which scripts/debian-packages brings: its checks, and one that scrapes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / ".venvs/debian/usr/bin"
TIMEOUT_S = 60


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if found is None:
        pytest.skip(f"{name} is not installed: scripts/debian-packages")
    return found


def check(*arguments: str | Path, said: bytes = b"") -> bytes:
    """`promtool check ARGUMENTS` finds nothing wrong; what it remarks all the same."""
    result = subprocess.run(
        [program("promtool"), "check", *map(str, arguments)],
        input=said,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    return result.stderr


def scraping(target: str) -> str:
    """A configuration that scrapes `target`, HOST:PORT, every second. YAML reads JSON."""
    job = {"job_name": "headway", "static_configs": [{"targets": [target]}]}
    return json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]})


class Prometheus:
    """A running Prometheus. `config_text` is its configuration, such as `scraping` makes."""

    def __init__(self, folder: Path, config_text: str) -> None:
        config = folder / "prometheus.yml"
        config.write_text(config_text)
        # Prometheus does not report its port, so the test chooses one that is free now.
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}/api/v1/query"
        self._log = folder / "prometheus.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder}/prometheus",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stderr=log,
            )

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The series of an expression as it is now; none while it does not answer yet."""
        try:
            with urlopen(f"{self._url}?{urlencode({'query': expression})}", timeout=5) as answer:
                result: list[Any] = json.load(answer)["data"]["result"]
        except URLError:
            return []
        return [(each["metric"], float(each["value"][1])) for each in result]

    def wait_for(self, expression: str, value: float | None = None) -> float:
        """Until the only series has that value, or any; which it has then."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = [each[1] for each in self.ask(expression)]
            if len(found) == 1 and value in (None, found[0]):
                return found[0]
            assert time.monotonic() < deadline, f"{expression}: {found}\n{self._log.read_text()}"
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)
