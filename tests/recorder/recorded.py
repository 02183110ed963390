"""Starts `headway telemetry` for a test, as a user does, and asks its API."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from started_program import TIMEOUT_S, StartedProgram


class Recorded(StartedProgram):
    """A running recorder with its site."""

    def __init__(self, folder: Path, *options: str, launcher: tuple[str, ...] = ()) -> None:
        self.socket = str(folder / "telemetry.sock")
        self.store = folder / "telemetry.sqlite"
        process = subprocess.Popen(
            [
                *(*launcher, sys.executable, "-m", "headway", "telemetry"),
                *("--listen", f"unix:{self.socket}", "--http", "127.0.0.1:0"),
                *("--store", str(self.store), *options),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        super().__init__(process)
        try:
            self.url = self.wait_for(r"(https?://[\d.]+:\d+)")[1]
        except AssertionError:
            self.stop()
            raise

    def ask(self, question: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{question}", timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def wait_until_received(self, number: int) -> None:
        """Waits until so many datagrams have come in since it started."""
        deadline = time.monotonic() + TIMEOUT_S
        while (received := self.ask("now")["recorder"]["received"]) < number:
            assert time.monotonic() < deadline, f"{received} of {number} datagrams came"
            time.sleep(0.05)

    def stop(self) -> int:
        return self.end(signal.SIGTERM)
