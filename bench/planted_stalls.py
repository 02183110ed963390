"""Servers whose event loops are stalled at known moments, and what finds the stalls.

The programs are in bench/programs: `stalls` has the stalls and the heartbeat. This module does not
know how its rows are printed.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import wrk
from known_stalls import described
from places import PROGRAMS, RECIPES
from recipe_run import Tool, a_place

from headway.programs import process_tree
from headway.report import event_loops
from headway.report.model import EventLoopRow, GilReport
from headway_lab.setting import started

BIN = Path(sys.executable).parent
CAUSES = ("sleep", "python", "c", "thread")
PLAIN, HEADWAY, DEBUG, HEARTBEAT = "plain", "headway run", "asyncio debug", "heartbeat"
FINDERS = (HEADWAY, DEBUG, HEARTBEAT)
PRICED = (PLAIN, HEADWAY, DEBUG)
# The stalls of each cause, and the time between two.
STALLS = 3
PAUSE_S = 0.3
# From which duration on asyncio's debug mode and the heartbeat name an iteration.
LATE_S = 0.1
# By how much the clocks of the client and of a finding may differ.
SLACK_S = 0.05
WARM_UP_S = 1.0
TOOK = re.compile(r"^Executing .* took ([0-9.]+) seconds$", re.DOTALL)
BEAT = re.compile(r"^heartbeat late by ([0-9.]+) s$")
# What the report says of a stall: the part of the iteration, and the function.
LINES = {
    "sleep": (event_loops.BLOCKED, "sleep"),
    "python": (event_loops.COMPUTED, "compute"),
    "c": (event_loops.COMPUTED, "sum_in_c"),
    "thread": (event_loops.WAITED, "sum_in_c"),
}


class Server(NamedTuple):
    """`words` are the Python options and arguments that start it; PORT stands for a free port, and
    FOLDER for an empty folder. One without a port is a kernel."""

    name: str
    packages: tuple[str, ...]
    words: str

    @property
    def is_kernel(self) -> bool:
        return "PORT" not in self.words

    def versions(self) -> str:
        """Raises PackageNotFoundError."""
        return ", ".join(f"{package} {metadata.version(package)}" for package in self.packages)

    def missing(self) -> str:
        """The reason why it cannot be measured; "" if it can."""
        try:
            self.versions()
        except metadata.PackageNotFoundError as error:
            return f"{sys.executable} has no {error.name}: scripts/recipes makes .venvs/recipes"
        return ""


SERVERS = (
    Server(
        "fastapi",
        ("fastapi", "uvicorn"),
        "-m uvicorn stalling_fastapi:app --loop asyncio --log-level warning --port PORT",
    ),
    Server("aiohttp", ("aiohttp",), "PROGRAMS/stalling_aiohttp.py PORT"),
    Server(
        "jupyter",
        ("ipykernel", "jupyter_client"),
        "-m ipykernel_launcher -f FOLDER/kernel.json",
    ),
)


class Planted(NamedTuple):
    """A stall, from the client's request to the answer, on the wall clock."""

    cause: str
    began_s: float
    ended_s: float

    def overlaps(self, began_s: float, ended_s: float) -> bool:
        return began_s < self.ended_s + SLACK_S and ended_s > self.began_s - SLACK_S


class Found(NamedTuple):
    """What a finder says of the planted stalls: how many of each cause it found, of how many it
    tells the cause and the line, how much else it found, and an example in its own words."""

    planted: Counter[str]
    found: Counter[str]
    with_cause: Counter[str]
    with_line: Counter[str]
    others: int
    example: str


class Running(NamedTuple):
    """A server that answers. `stall` returns when a stall is over; `stop` ends the server."""

    tool: Tool
    stall: Callable[[str], object]
    stop: Callable[[], object]

    @property
    def report(self) -> Path:
        return self.tool.place.folder / "report.json"

    @property
    def log(self) -> Path:
        return self.tool.place.folder / "log"


@contextmanager
def serving(server: Server, finder: str, *, finds: bool) -> Iterator[Running]:
    """The server under a finder. With `finds`, a heartbeat wakes its loop, and findings are
    logged."""
    with a_place(BIN, 0) as place:
        environment = {
            "HOME": str(place.folder),
            "PYTHONPATH": str(PROGRAMS),
            "PYTHONASYNCIODEBUG": "1" if finder == DEBUG else "",
            "STALLS_LOG": str(place.folder / "log") if finds else "",
        }
        headway = "-m headway run --json FOLDER/report.json " if finder == HEADWAY else ""
        command = f"python {headway}{server.words}".replace("PROGRAMS", str(PROGRAMS))
        name = f"{server.name} with {finder}"
        with started(place.words(command), name, speaks=False, environment=environment) as program:
            tool = Tool(place, program)
            if server.is_kernel:
                with kernel(tool, finder) as running:
                    yield running
            else:
                tool.wait_for_answer()

                def stop() -> None:
                    # At SIGTERM uvicorn ends by the signal's default action, and the report that
                    # is then made from the counters has no lines.
                    program.process.send_signal(signal.SIGINT)
                    tool.wait()

                yield Running(tool, lambda cause: tool.get(f"/{cause}"), stop)


@contextmanager
def kernel(tool: Tool, finder: str) -> Iterator[Running]:
    """A kernel with a client, which runs a stall as a cell."""
    if str(RECIPES) not in sys.path:
        sys.path.append(str(RECIPES))
    import notebook

    client = notebook.connect(tool.place.folder / "kernel.json")

    def stop() -> None:
        if finder == DEBUG:
            # In debug mode ipykernel 7.4 does not end at a client's request.
            tool.stop()
        else:
            client.shutdown()
            tool.wait()

    try:
        notebook.run(client, "import stalls\nawait stalls.begin()")
        yield Running(tool, lambda cause: notebook.run(client, f"await stalls.{cause}()"), stop)
    finally:
        client.stop_channels()


def find(server: Server, finder: str) -> Found:
    """Plants stalls, and reads what the finder says of them."""
    with serving(server, finder, finds=True) as running:
        time.sleep(WARM_UP_S)
        planted = [plant(running, cause) for _ in range(STALLS) for cause in CAUSES]
        running.stop()
        if finder == HEADWAY:
            return found_by_headway(planted, read_report(running))
        return found_by_log(planted, finder, read_log(running))


def plant(running: Running, cause: str) -> Planted:
    time.sleep(PAUSE_S)
    began_s = time.time()
    running.stall(cause)
    return Planted(cause, began_s, time.time())


def read_report(running: Running) -> EventLoopRow:
    try:
        report = GilReport.decode(json.loads(running.report.read_text()))
    except (OSError, ValueError):
        running.tool.fail("has left no report")
    if not report.event_loops:
        running.tool.fail("has a report without an event loop")
    return report.event_loops[0]


def found_by_headway(planted: Sequence[Planted], row: EventLoopRow) -> Found:
    """The report sums up: how many iterations were late, and how long for which line. So a stall
    counts as found if there is an iteration for it, and has its line for each time that the line is
    charged with the duration of one."""
    count = Counter(each.cause for each in planted)
    with_line: Counter[str] = Counter()
    for cause, number in count.items():
        lasted_s = sum(each.ended_s - each.began_s for each in planted if each.cause == cause)
        charged_s = sum(
            line.late_s
            for line in row.lines
            if (line.part, line.function) == LINES[cause]
            and (line.thread is not None) == (cause == "thread")
        )
        with_line[cause] = min(number, round(number * charged_s / lasted_s))
    late = sum(number for upper_s, number in row.iteration.buckets if upper_s > LATE_S)
    unread = max(0, min(late, len(planted)) - with_line.total())
    found = Counter(with_line)
    for cause in CAUSES:
        # Stalls whose iterations were not read: the first ones.
        more = min(unread, count[cause] - found[cause])
        found[cause] += more
        unread -= more
    example = described(row.lines[0]) if row.lines else ""
    return Found(count, found, with_line, with_line, max(0, late - len(planted)), example)


def read_log(running: Running) -> list[tuple[str, float, str]]:
    """What logged a line, when, and its text."""
    if not running.log.exists():
        running.tool.fail("has no log")
    return [tuple(json.loads(line)) for line in running.log.read_text().splitlines()]


def found_by_log(
    planted: Sequence[Planted], finder: str, lines: Sequence[tuple[str, float, str]]
) -> Found:
    count = Counter(each.cause for each in planted)
    found, with_line = Counter[str](), Counter[str]()
    others, example = 0, ""
    seen: set[Planted] = set()
    for _, ended_s, text in lines:
        match = (TOOK if finder == DEBUG else BEAT).match(text)
        if match is None:
            continue
        example = example or text
        began_s = ended_s - float(match[1])
        met = [each for each in planted if each.overlaps(began_s, ended_s)]
        others += not met
        for each in met:
            if each not in seen:
                seen.add(each)
                found[each.cause] += 1
            function = LINES[each.cause][1]
            if f"{function}()" in text and "stalls.py:" in text:
                with_line[each.cause] += 1
    return Found(count, found, Counter(), with_line, others, example)


def price(server: Server, finder: str, seconds: float) -> dict[str, float]:
    """Requests a second of the light page, and the server's CPU time for each."""
    with serving(server, finder, finds=False) as running:
        wrk.load(running.tool.port, "/", WARM_UP_S)
        used_before_s = process_tree.cpu_s(running.tool.pid)
        load = wrk.load(running.tool.port, "/", seconds)
        used_s = process_tree.cpu_s(running.tool.pid) - used_before_s
        running.stop()
    return {
        "requests_per_s": load.requests / load.duration_s,
        "cpu_per_request_s": used_s / max(1, load.requests),
    }
