"""The recorder beside the demo: `headway telemetry`, with a dashboard while it runs and verdicts on
the demo's phases at the end."""

import json
import textwrap
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from running import Process, running

# The width that text is broken to.
COLUMNS = 100


class Recorder:
    """A running `headway telemetry`: servers report to `socket`, its dashboard is at `url`."""

    def __init__(self, socket: str, url: str, process: Process) -> None:
        self.socket = socket
        self.url = url
        self._process = process

    def compare(self, phases: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
        """The recorder's row for each phase; a phase is a name, its start and its end."""
        rows = [f"row={quote(name)}~{start}~{end}~" for name, start, end in phases]
        with urllib.request.urlopen(f"{self.url}/api/v1/compare?{'&'.join(rows)}") as answer:
            found: list[dict[str, Any]] = json.load(answer)["rows"]
        return found

    def wait(self) -> None:
        """Waits until the recorder ends."""
        self._process.wait()


@contextmanager
def recording(folder: Path) -> Iterator[Recorder]:
    socket = f"unix:{folder}/telemetry.sock"
    command = ["telemetry", "--listen", socket, "--http", "127.0.0.1:0"]
    command += ["--store", f"{folder}/telemetry.sqlite"]
    with running(folder / "telemetry.log", command) as (url, process):
        yield Recorder(socket, url, process)


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
