"""A web server in a shape: processes and threads, and the scheduler of their GILs.

It is Headway's own, with the command line that users write, or Apache with mod_wsgi (`mod_wsgi`).
Each listens on a loopback port of its own, serves `programs/wsgi_page.py` and reports to a socket.
This module does not know the load, or how the reports are used.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from headway.programs.processes import ChildProgram, ProgramError
from headway_lab.measured import apache
from headway_lab.measured.wsgi import mod_wsgi
from headway_lab.setting import PROGRAMS, Setting, started

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 10.0
POLL_S = 0.02
# The shortest interval that is allowed.
REPORT_INTERVAL_S = 0.5
HEADWAY, MOD_WSGI = "headway", "mod_wsgi"
LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")


class Shape(NamedTuple):
    """A server's configuration. `setting.policy` is Headway's; without a GIL there is none."""

    server: str
    processes: int
    threads: int
    free_threading: bool
    setting: Setting

    def __str__(self) -> str:
        name = "free-threaded" if self.free_threading else self.setting.name
        return f"{self.server} {self.processes}x{self.threads} {name}"


class Served:
    """A running server."""

    def __init__(self, shape: Shape, program: ChildProgram, port: int | None) -> None:
        self.shape = shape
        self.pid = program.process.pid
        self._program = program
        self.port = self._announced_port() if port is None else port
        self._wait_for_answer()

    def _announced_port(self) -> int:
        end_s = time.monotonic() + START_TIMEOUT_S
        while (found := LISTENING.search(self._program.messages())) is None:
            self.check_alive()
            if time.monotonic() > end_s:
                self.fail("does not listen")
            time.sleep(POLL_S)
        return int(found[1])

    def _wait_for_answer(self) -> None:
        end_s = time.monotonic() + START_TIMEOUT_S
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, ANSWER_TIMEOUT_S)
            try:
                connection.request("GET", "/")
                if (status := connection.getresponse().status) != 200:
                    self.fail(f"answered {status}")
                return
            except (OSError, http.client.HTTPException) as error:
                self.check_alive()
                if time.monotonic() > end_s:
                    self.fail(f"does not answer ({error})")
            finally:
                connection.close()
            time.sleep(POLL_S)

    def check_alive(self) -> None:
        if self._program.process.poll() is not None:
            self.fail("ended")

    def fail(self, what: str) -> NoReturn:
        said = self._program.last_message()
        raise ProgramError(f"{self.shape} {what}; the last that it said: {said}")


@contextmanager
def serving(shape: Shape, folder: Path, socket: Path, fixed_loops: int) -> Iterator[Served]:
    """A server from its first answer to its end. Every user may enter `folder`."""
    port = None
    if shape.server == HEADWAY:
        command = headway_command(shape, socket)
    else:
        site = mod_wsgi.Site(
            express=mod_wsgi.find_express(shape.setting.python, shape.free_threading),
            folder=folder,
            socket=socket,
            report_interval_s=REPORT_INTERVAL_S,
            processes=shape.processes,
            threads=shape.threads,
            switch_interval_s=None if shape.free_threading else shape.setting.switch_interval_s,
        )
        port = apache.free_port()
        command = mod_wsgi.command(site, port)
    environment = {"FIXED_LOOPS": str(fixed_loops)}
    with started(command, str(shape), speaks=False, environment=environment) as program:
        yield Served(shape, program, port)


def headway_command(shape: Shape, socket: Path) -> list[str]:
    setting = shape.setting
    words = [setting.python, *setting.options, "-m", "headway", "serve", "wsgi_page:app"]
    words += ["--app-dir", str(PROGRAMS), "--bind", "127.0.0.1:0", "--access-log", "off"]
    words += ["--processes", str(shape.processes), "--threads", str(shape.threads)]
    words += ["--telemetry", f"unix:{socket}", "--telemetry-interval", str(REPORT_INTERVAL_S)]
    if shape.free_threading:
        return [*words, "--free-threading"]
    assert setting.policy is not None
    words += ["--policy", setting.policy]
    return [*words, "--switch-interval", str(setting.switch_interval_s)]
