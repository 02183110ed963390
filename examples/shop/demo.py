"""`make demo`: serves the shop with Headway, puts a load on it, and prints where its time went.

Four processes take part: this one, the server, the load's, so that the server's GIL is shared
by nothing but its own threads, and a recorder with a dashboard. First the light pages alone, then
with visitors who ask for the heavy page, then the same with the policy `priority`. Everything
ends by itself after half a minute, or with --keep when the dashboard has been looked at.
"""

import argparse
import http.client
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import recorder
from recorder import Recorder
from running import HEADWAY, running

HERE = Path(__file__).resolve().parent
THREADS = 4
LIGHT_VISITORS = 4
HEAVY_VISITORS = 2

PAGES = ("home", "product", "cart", "recommendations")
GIL_STATES = ("held", "handoff", "idle")


class Server(NamedTuple):
    host: str
    port: int
    access_log: Path


class Phase(NamedTuple):
    """The results of one part of the load. Times are seconds; waits are empty without a GIL."""

    title: str
    latencies: dict[str, list[float]]
    gil_waits: dict[str, list[float]]
    gil_shares: dict[str, float]
    switch_interval: float
    # Seconds since 1970.
    start: float
    end: float


@contextmanager
def serving(folder: Path, policy: str, telemetry: str) -> Iterator[Server]:
    """Yields the shop's server once it listens; stops it, by its pid, on exit."""
    access_log, messages = folder / f"access-{policy}.log", folder / f"server-{policy}.log"
    command = ["serve", "watched:app", "--bind", "127.0.0.1:0"]
    command += ["--threads", str(THREADS), "--access-log", f"json:{access_log}"]
    command += ["--policy", policy, "--telemetry", telemetry]
    with running(messages, command) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        server = Server(host, int(port), access_log)
        # The first visit to a page compiles its template.
        put_load(server, 0.5, 1, 1)
        yield server


def read_gil(server: Server) -> dict[str, Any]:
    """The GIL report, schema 2, of the meter in the server."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request("GET", "/gil")
    seen: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return seen


def put_load(server: Server, seconds: float, light: int, heavy: int) -> dict[str, list[float]]:
    """Each page's latencies, as the clients measured them."""
    command = [sys.executable, str(HERE / "load.py"), server.host, str(server.port)]
    command += ["--seconds", str(seconds), "--light", str(light), "--heavy", str(heavy)]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=seconds + 60)
    if done.returncode != 0:
        raise SystemExit("demo: the load did not come through")
    latencies: dict[str, list[float]] = {page: [] for page in PAGES}
    for page, latency in json.loads(done.stdout):
        latencies[page].append(latency)
    return latencies


def page_of(target: str) -> str | None:
    """The page of a request's target, if the table shows that page."""
    head = target.split("/")[1]
    return head if head in PAGES else "home" if not head else None


def read_gil_waits(access_log: Path, start: float, end: float) -> dict[str, list[float]]:
    """Each page's GIL waits from the access log, for responses between two times of day."""
    waits: dict[str, list[float]] = {page: [] for page in PAGES}
    for line in access_log.read_text().splitlines():
        request = json.loads(line)
        page = page_of(request["target"])
        within = request["method"] == "GET" and start <= request["time"] <= end
        if page and within and request["gil_wait_time"] is not None:
            waits[page].append(request["gil_wait_time"])
    return waits


def gil_shares(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """The shares of each state in the main GIL's time between two reports; empty without a GIL."""
    if after["gil"] == "disabled":
        return {}
    spent = {
        state: after["gils"][0][f"{state}_s"] - before["gils"][0][f"{state}_s"]
        for state in GIL_STATES
    }
    return {state: seconds / sum(spent.values()) for state, seconds in spent.items()}


def run_phase(server: Server, title: str, seconds: float, heavy: int) -> Phase:
    before, start = read_gil(server), time.time()
    latencies = put_load(server, seconds, LIGHT_VISITORS, heavy)
    end, after = time.time(), read_gil(server)
    # A worker writes its access log when it has nothing else to do.
    time.sleep(0.5)
    waits = read_gil_waits(server.access_log, start, end)
    shares = gil_shares(before, after)
    return Phase(title, latencies, waits, shares, after["switch_interval_s"], start, end)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1]


def milliseconds(values: list[float], share: float) -> str:
    return f"{percentile(values, share) * 1e3:.1f} ms" if values else "-"


def print_phase(phase: Phase) -> None:
    print(f"\n{phase.title}")
    print(f"  {'page':<16}{'requests':>9}{'p50':>12}{'p99':>12}{'GIL wait p50':>17}{'p99':>12}")
    for page in PAGES:
        latencies, waits = phase.latencies[page], phase.gil_waits[page]
        if latencies:
            print(
                f"  {page:<16}{len(latencies):>9}"
                f"{milliseconds(latencies, 0.5):>12}{milliseconds(latencies, 0.99):>12}"
                f"{milliseconds(waits, 0.5):>17}{milliseconds(waits, 0.99):>12}"
            )
    shares = ", ".join(f"{state} {share:.1%}" for state, share in phase.gil_shares.items())
    print(f"  GIL: {shares or 'none in this interpreter'}", flush=True)


def explain(alone: Phase, beside: Phase) -> str:
    """Explains the two tables to a newcomer, in means, since only means add up."""
    before_ms = statistics.fmean(alone.latencies["product"]) * 1e3
    after_ms = statistics.fmean(beside.latencies["product"]) * 1e3
    took = f"took {before_ms:.1f} ms on average alone, and {after_ms:.1f} ms with recommendations"
    if not beside.gil_shares:
        return (
            f"A product page {took}.\nThis interpreter has no GIL to wait for: "
            "what there is to share is processors."
        )
    waited_ms = statistics.fmean(beside.gil_waits["product"]) * 1e3
    interval_ms = beside.switch_interval * 1e3
    text = f"A product page {took};\n{waited_ms:.1f} ms of that it waited for the GIL."
    if waited_ms < interval_ms / 2:
        return text
    return (
        f"{text} This is the convoy: a light page gives the\n"
        "GIL up for SQLite and for the network, and to get it back waits behind a CPU-bound\n"
        f"thread, for a switch interval ({interval_ms:g} ms) at a time. "
        "It does no more work than before."
    )


def explain_policy(beside: Phase, scheduled: Phase) -> str:
    before_ms, after_ms = (
        statistics.fmean(phase.latencies["product"]) * 1e3 for phase in (beside, scheduled)
    )
    heavy = [len(phase.latencies["recommendations"]) for phase in (beside, scheduled)]
    return (
        f"Under the policy `priority` a product page took {after_ms:.1f} ms instead of "
        f"{before_ms:.1f} ms,\nwhile {heavy[1]} pages of recommendations were computed "
        f"instead of {heavy[0]}: a thread that\ncomes back from I/O gets the GIL at once from a "
        "CPU-bound one."
    )


def run_all(folder: Path, seconds: float, recording: Recorder) -> Iterator[Phase]:
    """Yields each phase when it is over."""
    alone_s, beside_s = seconds / 4, seconds * 3 / 8
    with serving(folder, "interval", recording.socket) as server:
        title = f"Light pages alone: {LIGHT_VISITORS} visitors, {alone_s:g} seconds"
        yield run_phase(server, title, alone_s, 0)
        title = f"With {HEAVY_VISITORS} who ask for recommendations, {beside_s:g} seconds"
        beside = run_phase(server, title, beside_s, HEAVY_VISITORS)
        yield beside
    if beside.gil_shares:
        with serving(folder, "priority", recording.socket) as server:
            title = f"The same under the policy `priority`, {beside_s:g} seconds"
            yield run_phase(server, title, beside_s, HEAVY_VISITORS)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves the shop under load; prints three tables.")
    parser.add_argument(
        "--seconds", type=float, default=20, help="of load, in all (default: %(default)s)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the dashboard up at the end, until Ctrl-C"
    )
    arguments = parser.parse_args()
    seconds = arguments.seconds
    if not HEADWAY.exists():
        raise SystemExit(f"demo: found no {HEADWAY}: run it with `make demo`")
    with (
        tempfile.TemporaryDirectory(prefix="headway-demo-") as name,
        recorder.recording(Path(name)) as recording,
    ):
        print(
            f"Serving examples/shop with {THREADS} threads, {seconds:g} seconds of load in "
            f"all.\nThe dashboard, while it runs: {recording.url}/",
            flush=True,
        )
        phases = []
        for phase in run_all(Path(name), seconds, recording):
            print_phase(phase)
            phases.append(phase)
            if len(phases) == 2:
                print(f"\n{explain(*phases)}", flush=True)
        if len(phases) == 3:
            print(f"\n{explain_policy(*phases[1:])}")
        spans = [(phase.title, phase.start, phase.end) for phase in phases]
        print(f"\nWhat the recorder makes of it:\n{recorder.explain(recording.compare(spans))}")
        if arguments.keep:
            print(f"\nThe dashboard is at {recording.url}/ until Ctrl-C.", flush=True)
            recording.wait()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
