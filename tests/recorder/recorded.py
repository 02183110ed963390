"""Starts `headway telemetry` for a test, as a user does, and asks its API."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from launch import run_main
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
        return json.loads(self.read(f"api/v1/{question}"))

    def verdicts(self, window_s: int) -> dict[str, str]:
        """The name of the verdict on the last seconds in each view that has words or a gauge for
        it; a view that says another than the API is left out."""
        titles = {}
        for row in (f"summary?from=-{window_s}", f"now?window={window_s}"):
            answer = self.ask(row)
            verdict = answer.get("total", answer)["verdict"]
            titles[verdict["name"]] = verdict["title"]
        metrics = re.findall(r'headway_verdict="([\w-]+)"\} 1$', self.read("metrics"), re.M)
        table = self.read(f"api/v1/compare.md?row=a~-{window_s}~0~").splitlines()[-1]
        top = run_main("top", self.url, "--once", "--window", str(window_s)).stdout
        shown = {"API": next(iter(titles)), "metrics": ",".join(metrics)}
        for name, title in titles.items():
            shown |= {"comparison": name} if title in table else {}
            shown |= {"top": name} if title in top else {}
        return shown

    def read(self, path: str) -> str:
        with urlopen(f"{self.url}/{path}", timeout=TIMEOUT_S) as answer:
            text: str = answer.read().decode()
        return text

    def wait_until_received(self, number: int) -> None:
        """Waits until so many datagrams have come in since it started."""
        deadline = time.monotonic() + TIMEOUT_S
        while (received := self.ask("now")["recorder"]["received"]) < number:
            assert time.monotonic() < deadline, f"{received} of {number} datagrams came"
            time.sleep(0.05)

    def stop(self) -> int:
        return self.end(signal.SIGTERM)
