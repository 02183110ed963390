"""The recorder beside the demo: `headway telemetry`, with a dashboard while it runs and verdicts on
the demo's phases at the end."""

import json
import re
import signal
import subprocess
import textwrap
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10
# The width that text is broken to.
COLUMNS = 100


class Recorder:
    """A running `headway telemetry`: `socket` is where servers report, `url` where it shows."""

    def __init__(self, headway: Path, folder: Path) -> None:
        self.socket = f"unix:{folder}/telemetry.sock"
        self._messages = folder / "telemetry.log"
        command = [str(headway), "telemetry", "--listen", self.socket]
        command += ["--http", "127.0.0.1:0", "--store", f"{folder}/telemetry.sqlite"]
        with self._messages.open("w") as stderr:
            self._process = subprocess.Popen(command, stderr=stderr)
        self.url = self._wait_for_address()

    def _wait_for_address(self) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            found = re.search(r"showing at (http://\S+)", self._messages.read_text())
            if found:
                return found[1]
            time.sleep(0.05)
        self.stop()
        raise SystemExit(f"demo: the recorder did not start:\n{self._messages.read_text()}")

    def compare(self, phases: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
        """What the recorder says of each phase: a name, and from when to when it was."""
        rows = [f"row={quote(name)}~{start}~{end}~" for name, start, end in phases]
        with urllib.request.urlopen(f"{self.url}/api/v1/compare?{'&'.join(rows)}") as answer:
            found: list[dict[str, Any]] = json.load(answer)["rows"]
        return found

    def wait(self) -> None:
        """Until somebody ends it, or us."""
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def explain(rows: Sequence[dict[str, Any]]) -> str:
    """Each phase's verdict, with its evidence and the first advice, in plain words."""
    lines = []
    for row in rows:
        verdict = row["verdict"]
        lines.append(f"{row['name']}: {verdict['title']}. {verdict['text']}")
        lines += [f"Try: {each['try']} {each['expect']}" for each in verdict["advice"][:1]]
    broken = [
        textwrap.fill(line, COLUMNS, initial_indent="  ", subsequent_indent="    ")
        for line in lines
    ]
    return "\n".join(broken)
