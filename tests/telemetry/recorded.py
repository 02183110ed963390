"""Starts `headway telemetry` for a test, as a user does, and asks its API."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

TIMEOUT_S = 30


class Recorded:
    """A running recorder with its site; what it says on stderr is gathered as it comes."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = str(folder / "telemetry.sock")
        self.store = folder / "telemetry.sqlite"
        self.stderr = ""
        self._said = threading.Condition()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headway", "telemetry"),
                *("--listen", f"unix:{self.socket}", "--http", "127.0.0.1:0"),
                *("--store", str(self.store), *options),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read_stderr)
        self._reader.start()
        try:
            self.url = self.wait_for(r"(https?://[\d.]+:\d+)")[1]
        except AssertionError:
            self.stop()
            raise

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.stderr += line
                self._said.notify_all()
        with self._said:
            self.stderr += "\0"
            self._said.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Waits until stderr has a match."""
        with self._said:
            self._said.wait_for(
                lambda: re.search(pattern, self.stderr) or self.stderr.endswith("\0"), TIMEOUT_S
            )
            found = re.search(pattern, self.stderr)
        assert found, f"{pattern!r} is not in stderr:\n{self.stderr}"
        return found

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
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._reader.join()
            if self.process.stderr:
                self.process.stderr.close()
