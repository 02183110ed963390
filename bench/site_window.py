"""One window of a site under load: a server started afresh, warmed up, loaded by k6 and weighed.

The visitors are those of examples/site/load.js: sessions that begin as a Poisson process, with
think times. A request belongs to the window if it begins in it. This module knows neither which
servers are compared nor what makes a rate one that a server sustains.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from installed import PEERS_FOLDER
from peers import ROOT, SITE, Server
from serving import Served, serving

from headway.output.statistics import percentile
from headway.programs import process_tree
from headway.programs.processes import ProgramError

sys.path.insert(0, str(SITE))
import services

K6 = ROOT / ".venvs" / "k6" / "k6"
# Pages that answer in milliseconds where nothing else runs; "delivery" waits for its service, and
# the others compute.
LIGHT = ("home", "book", "search", "api", "static")
PAGES = (*LIGHT, "delivery", "login", "export", "photo", "report")
PHOTO_BYTES = 2_000_000
# A session has its think times and pages behind it, and a new one takes its place.
WARM_UP_S = 8.0
# k6 forgets the requests that are under way at its end. Those of the window have failed by then:
# the timeout of load.js is 5 s.
TAIL_S = 5.5
# k6 is late if its pauses end later than this, for one in a hundred.
LATE_S = 0.010
NICE = "-10"
START_S = 60.0


class Request(NamedTuple):
    """`begin_s` counts from the window's begin. The status 0 is one without an answer."""

    page: str
    begin_s: float
    latency_s: float
    status: int

    @property
    def failed(self) -> bool:
        return not 200 <= self.status < 400


class Window(NamedTuple):
    """The requests of a window of `seconds`, and the use of CPUs in it, in seconds a second: of the
    server with all its processes, the database and k6."""

    server: str
    rate: float
    seconds: float
    requests: list[Request]
    site_cpu: float
    database_cpu: float
    load_cpu: float
    pss_bytes: int
    lateness_p99_s: float
    # Sessions that k6 had no visitor for.
    dropped: int

    @property
    def late(self) -> bool:
        """Whether k6 was late, so that the figures are its own and not the server's."""
        return self.lateness_p99_s > LATE_S or self.dropped > 0

    def of(self, pages: Sequence[str]) -> list[Request]:
        return [request for request in self.requests if request.page in pages]

    def latency_s(self, pages: Sequence[str], share: float) -> float:
        return percentile(sorted(request.latency_s for request in self.of(pages)), share)

    @property
    def failures(self) -> int:
        return sum(request.failed for request in self.requests)

    @property
    def answered_per_s(self) -> float:
        return (len(self.requests) - self.failures) / self.seconds

    def written(self, file: Path) -> None:
        """Writes the window whole or not at all."""
        partial = file.with_suffix(".partial")
        with gzip.open(partial, "wt") as out:
            json.dump(self._asdict(), out)
        partial.rename(file)

    @classmethod
    def read(cls, file: Path) -> Window:
        with gzip.open(file, "rt") as text:
            found: dict[str, Any] = json.load(text)
        found["requests"] = [Request(*each) for each in found["requests"]]
        return cls(**found)


class Site:
    """The database and the service that all servers use, and the photo that visitors upload."""

    def __init__(self, running: services.Services, folder: Path) -> None:
        self.running = running
        self.photo = photo(folder)
        # The file that k6 writes.
        self._rows = folder / "load.csv"

    def window(
        self,
        server: Server,
        application: str,
        rate: float,
        seconds: float,
        *,
        after: tuple[float, float] | None = None,
        seed: int = 0,
    ) -> Window:
        """`after` are the rate and the seconds of a second phase, which belongs to the window. The
        visitors of one `seed` are the same under each server."""
        # The last phase goes on for the tail.
        values = self._values(rate, WARM_UP_S + seconds + (TAIL_S if after is None else 0))
        values["SEED"] = str(seed)
        length_s = seconds
        if after is not None:
            values["AFTER"] = f"{after[0]:g}:{after[1] + TAIL_S:g}"
            length_s += after[1]
        with self._loaded(server, application, values) as (served, load, began_s):
            sleep_until(began_s + WARM_UP_S)
            before = self._cpu(served, load)
            sleep_until(began_s + WARM_UP_S + length_s)
            used = [now - then for now, then in zip(self._cpu(served, load), before, strict=True)]
            pss_bytes = process_tree.pss_bytes(served.pid)
            summary = load.communicate()[0]
        if load.returncode != 0:
            raise ProgramError(f"k6 ended with status {load.returncode}: {last_line(summary)}")
        requests, lateness_s, dropped = rows(self._rows, began_s + WARM_UP_S, length_s)
        if not requests:
            raise ProgramError(f"{served.server}: no request was answered")
        site_cpu, database_cpu, load_cpu = (each / length_s for each in used)
        return Window(
            server=str(served.server),
            rate=rate,
            seconds=length_s,
            requests=requests,
            site_cpu=site_cpu,
            database_cpu=database_cpu,
            load_cpu=load_cpu,
            pss_bytes=pss_bytes,
            lateness_p99_s=percentile(sorted(lateness_s), 0.99),
            dropped=dropped,
        )

    def told(self, server: Server, application: str, rate: float, seconds: float) -> str:
        """`headway top` on a window of Headway's server: its verdict and its tables."""
        path = self.photo.with_name("telemetry.sock")
        values = self._values(rate, WARM_UP_S + seconds + TAIL_S)
        with self._loaded(server._replace(telemetry=str(path)), application, values):
            time.sleep(WARM_UP_S)
            words = [sys.executable, "-m", "headway", "top", "--once", f"unix:{path}"]
            shown = subprocess.run(
                [*words, "--window", f"{seconds:g}"], capture_output=True, text=True
            )
        return shown.stdout or shown.stderr

    @contextmanager
    def _loaded(
        self, server: Server, application: str, values: dict[str, str]
    ) -> Iterator[tuple[Served, subprocess.Popen[str], float]]:
        """A server on a database as it was filled, k6, and when its first visitors come."""
        self.running.restore()
        self._rows.unlink(missing_ok=True)
        environment = self.running.environment
        with serving(server, application, PEERS_FOLDER / "bin", **environment) as served:
            values = {**values, "URL": f"http://127.0.0.1:{served.port}"}
            with loading(values, self._rows) as load:
                yield served, load, beginning_s(load, self._rows)

    def _values(self, rate: float, seconds: float) -> dict[str, str]:
        return {
            "RATE": f"{rate:g}",
            "SECONDS": f"{seconds:g}",
            "PHOTO": str(self.photo),
            "VISITORS": str(visitors(rate)),
        }

    def _cpu(self, served: Served, load: subprocess.Popen[str]) -> tuple[float, float, float]:
        return (
            served.cpu_s(),
            process_tree.cpu_s(self.running.postgres_pid),
            process_tree.cpu_s(load.pid),
        )


def visitors(rate: float) -> int:
    """More than are there at once while a server keeps up, and while it does not for a while."""
    return max(100, round(8 * rate))


@contextmanager
def loading(values: dict[str, str], out: Path) -> Iterator[subprocess.Popen[str]]:
    words = [str(K6), "run", "--quiet", "--no-usage-report", "--no-summary", "--out", f"csv={out}"]
    words += [word for name, value in values.items() for word in ("-e", f"{name}={value}")]
    # The generator runs before what it loads: a late one measures itself.
    words = ["nice", "-n", NICE, *words] if os.geteuid() == 0 else words
    load = subprocess.Popen(
        [*words, str(SITE / "load.js")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "K6_CSV_TIME_FORMAT": "unix_micro", "K6_CSV_SAVE_INTERVAL": "200ms"},
    )
    try:
        yield load
    finally:
        load.kill()
        load.wait()


def beginning_s(load: subprocess.Popen[str], found: Path) -> float:
    """The time at which the first visitors come, once k6 has made all of them."""
    end_s = time.monotonic() + START_S
    while True:
        text = found.read_text() if found.exists() else ""
        told = re.search(r"^beginnings,(\d+),", text, re.MULTILINE)
        if told:
            return int(told[1]) / 1e6
        if load.poll() is not None:
            raise ProgramError(f"k6: {last_line(load.communicate()[0])}")
        if time.monotonic() > end_s:
            raise ProgramError("k6 does not begin")
        time.sleep(0.05)


def rows(found: Path, begin_s: float, seconds: float) -> tuple[list[Request], list[float], int]:
    """The window's requests, how late k6's pauses ended, and how many sessions it dropped."""
    requests, lateness_s, dropped = [], [], 0
    with found.open(newline="") as file:
        for row in csv.DictReader(file):
            at_s = float(row["timestamp"]) / 1e6 - begin_s
            value = float(row["metric_value"])
            if row["metric_name"] == "latency":
                began_s = at_s - value / 1e3
                if 0 <= began_s < seconds:
                    status = int(row["status"])
                    requests.append(Request(row["name"], round(began_s, 4), value / 1e3, status))
            elif row["metric_name"] == "lateness" and 0 <= at_s < seconds:
                lateness_s.append(value / 1e3)
            elif row["metric_name"] == "dropped_iterations" and 0 <= at_s < seconds:
                dropped += round(value)
    return requests, lateness_s, dropped


def photo(folder: Path) -> Path:
    """A JPEG of noise of about 2 MB, which makes none of it smaller."""
    from PIL import Image

    file = folder / "photo.jpg"
    if not file.exists():
        width, height = 2000, 1600
        image = Image.frombytes("RGB", (width, height), os.urandom(width * height * 3))
        quality = 70
        while not file.exists() or file.stat().st_size < PHOTO_BYTES:
            image.save(file, "JPEG", quality=quality)
            quality += 1
    return file


def sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.time()))


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1]


def check() -> None:
    """Raises ProgramError if something that a window needs is not installed."""
    if not K6.exists():
        raise ProgramError("k6 is not there: run scripts/k6", 2)
    try:
        services.postgres_folder()
    except services.Missing as missing:
        raise ProgramError(str(missing), 2) from None


__all__ = ["LIGHT", "PAGES", "Request", "Site", "Window", "check"]
