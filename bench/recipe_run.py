"""Starts the tool of a recipe as its page does, with the line that changes or without it.

This module does not know what is measured. Tests start the tools by it too, from another
interpreter than the tools'.
"""

from __future__ import annotations

import http.client
import json
import re
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from places import RECIPES
from recipe_list import Recipe

from headway.programs.processes import ChildProgram, ProgramError
from headway.report.model import GilReport
from headway_lab.setting import started

VARIABLE = "HEADWAY"
START_TIMEOUT_S = 60.0
# How long a tool may take to end at SIGTERM, and a job or a client after its measurement.
END_TIMEOUT_S = 30.0
POLL_S = 0.02
LINE = re.compile(
    r"p50: ([0-9.]+) ms, p99: ([0-9.]+) ms, max: ([0-9.]+) ms, heavy: ([0-9.]+)/s", re.ASCII
)


class Place(NamedTuple):
    """Where a tool runs: the folder of its interpreter's commands, and the values of the words that
    stand for something in a recipe's commands."""

    bin: Path
    folder: Path
    port: int
    seconds: float

    def words(self, command: str) -> list[str]:
        """The command's words; the first is a command of the interpreter's environment."""
        values = {
            "PORT": str(self.port),
            "FOLDER": str(self.folder),
            "RECIPES": str(RECIPES),
            "SECONDS": f"{self.seconds:g}",
        }
        first, *rest = shlex.split(command)
        for name, value in values.items():
            rest = [word.replace(name, value) for word in rest]
        return [str(self.bin / first), *rest]


class Tool:
    """A running tool, or a client of one."""

    def __init__(self, place: Place, program: ChildProgram) -> None:
        self.place = place
        self.port = place.port
        self.program = program
        self.pid = program.process.pid

    def output(self) -> str:
        """Its stdout and its stderr so far."""
        return self.program.messages()

    def get(self, path: str) -> bytes:
        """The body of an HTTP server's response. Raises OSError or HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=END_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ProgramError(f"{self.program.name}: {path} has the status {response.status}")
        return body

    def wait_for_answer(self) -> None:
        end_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.get("/")
                return
            except (OSError, http.client.HTTPException) as error:
                if self.program.process.poll() is not None:
                    self.fail("has ended")
                if time.monotonic() > end_s:
                    self.fail(f"does not answer ({error})")
            time.sleep(POLL_S)

    def wait(self, seconds: float = END_TIMEOUT_S) -> int:
        """Its exit status, or minus the number of the signal that ended it."""
        try:
            return self.program.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"has not ended after {seconds:g} s")

    def stop(self) -> int:
        """Sends SIGTERM and waits for the end."""
        self.program.process.terminate()
        return self.wait()

    def latencies(self) -> dict[str, float]:
        """The figures of the line that a job or a client has printed before it ended."""
        status = self.wait(START_TIMEOUT_S + self.place.seconds + END_TIMEOUT_S)
        line = LINE.search(self.output())
        if status != 0 or line is None:
            self.fail(f"ended with {status} " + ("after" if line else "without") + " its figures")
        p50_ms, p99_ms, max_ms, heavy_per_s = map(float, line.groups())
        return {
            "p50_s": p50_ms / 1e3,
            "p99_s": p99_ms / 1e3,
            "max_s": max_ms / 1e3,
            "heavy_per_s": heavy_per_s,
        }

    def fail(self, what: str) -> NoReturn:
        raise ProgramError(
            f"{self.program.name} {what}; its last line: {self.program.last_message()}"
        )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def a_place(bin: Path, seconds: float) -> Iterator[Place]:
    """Where one tool runs with its client: a new folder and a free port. `bin` has the commands."""
    with tempfile.TemporaryDirectory(prefix="headway-recipe-") as folder:
        yield Place(bin, Path(folder), free_port(), seconds)


@contextmanager
def running(recipe: Recipe, place: Place, value: str) -> Iterator[Tool]:
    """The tool of a recipe from its start to its end, with `value` in HEADWAY, or without HEADWAY
    if `value` is "", and the service that it needs. An HTTP server answers already."""
    name = f"{recipe.name} with HEADWAY={value}" if value else f"{recipe.name} without HEADWAY"
    is_changed = bool(value and recipe.changed)
    command = recipe.changed if is_changed else recipe.command
    with ExitStack() as stack:
        if recipe.service:
            of_service = f"the service of {recipe.name}"
            stack.enter_context(_started(recipe.service, of_service, place, ""))
        tool = stack.enter_context(_started(command, name, place, value))
        if not (recipe.is_job or recipe.client):
            tool.wait_for_answer()
        yield tool


@contextmanager
def running_client(recipe: Recipe, place: Place) -> Iterator[Tool]:
    with _started(recipe.client, f"the client of {recipe.name}", place, "") as client:
        yield client


@contextmanager
def _started(command: str, name: str, place: Place, value: str) -> Iterator[Tool]:
    environment = {
        # Prefect and Jupyter keep files there.
        "HOME": str(place.folder),
        # Prefect's temporary server makes a new database, for which 20 s can be too short.
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(round(START_TIMEOUT_S)),
        "PYTHONPATH": str(RECIPES),
        "PYTHONUNBUFFERED": "1",
        "RECIPE_SECONDS": f"{place.seconds:g}",
    }
    if value:
        environment[VARIABLE] = value
    with started(place.words(command), name, speaks=False, environment=environment) as program:
        yield Tool(place, program)


def with_reports(value: str, place: Place) -> str:
    """The value of HEADWAY with which each process of the tool also writes a report for
    `reports`."""
    return f"{value},report={place.folder}/reports/%p.json"


def reports(place: Place) -> list[GilReport]:
    """The reports that the tool's processes have written, and those of their children."""
    files = sorted((place.folder / "reports").glob("*.json"))
    decoded = [GilReport.decode(json.loads(file.read_text())) for file in files]
    return [process for report in decoded for process in report.processes()]
