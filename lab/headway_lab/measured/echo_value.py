"""One value of `echo`: a server, its client, and the load beside them, for one window.

Everything runs in processes of its own. Right before a window with CPU-bound work, one thread
computes alone for a while, because its speed changes with the state of the machine. This module
does not know rows, rounds, or the use of the figures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from headway.output.statistics import percentile
from headway.programs.processes import NS, ProgramError, Window
from headway.report.model import GilReport
from headway_lab.experiment import MODES, Measured
from headway_lab.setting import Setting, program

# The place of the CPU-bound work: the server's process, unless it is "processes".
THREADS, PROCESSES, INTERPRETERS, FREE_THREADED = MODES
# The processors of server and client: chosen by the kernel, one for each, or one for both.
FREE, CLIENT_ELSEWHERE, ONE = ("free", "client elsewhere", "one")

WARM_UP_S = 0.2
ALONE_WARM_UP_S = 0.05
ALONE_SHARE = 0.5  # of a value's seconds, of one second at most
LEAST_ALONE_S = 0.2
# A request in a convoy takes about two switch intervals for each CPU-bound thread.
INTERVALS_PER_REQUEST = 2
REQUESTS = 10
MOST_SECONDS = 5.0


class Beside(NamedTuple):
    """The load beside a server. `plain` is the setting of all programs but the server."""

    server: Setting
    plain: Setting
    cpu_threads: int
    mode: str
    cores: str

    @property
    def request_s(self) -> float:
        """The approximate time of a request if threads share a GIL under CPython's rule, and no two
        threads run at the same time."""
        if self.mode != THREADS:
            return 0.0
        return INTERVALS_PER_REQUEST * self.cpu_threads * self.server.switch_interval_s

    @property
    def warm_up_s(self) -> float:
        """The time until all threads compute and a request was answered, with a limit."""
        return WARM_UP_S + min(self.request_s, MOST_SECONDS)

    def seconds(self, base_s: float) -> float:
        """The duration of a measurement: `base_s`, or the time of several requests in a convoy. It
        does not depend on measurements; otherwise slow values would differ in more than their
        rates."""
        return max(base_s, min(REQUESTS * self.request_s, MOST_SECONDS))


def measure(beside: Beside, seconds: float, server: str = "echo_server") -> Measured:
    """`server` is a program of `programs/`."""
    alone = beside.server._replace(policy=None)
    alone_per_s = work_alone(alone, seconds) if beside.cpu_threads else 0.0
    server_cores, client_cores = processors(beside.cores)
    in_server = 0 if beside.mode == PROCESSES else beside.cpu_threads
    words = [str(in_server), str(beside.server.switch_interval_s)]
    if beside.mode == INTERPRETERS:
        words.append(INTERPRETERS)
    with ExitStack() as running:
        with started_on(server_cores):
            serving = running.enter_context(program(beside.server, server, *words))
            workers = [
                running.enter_context(program(beside.plain, "computation", "1"))
                for _ in range(beside.cpu_threads - in_server)
            ]
        port = serving.answer()["port"]
        with started_on(client_cores):
            client = running.enter_context(program(beside.plain, "echo_client", str(port)))
        for ready in (*workers, client):
            ready.answer()
        window = Window.after(beside.warm_up_s, seconds)
        for told in (serving, *workers, client):
            told.measure(window)
        asked = client.answer()
        served, *worked = [worker.answer() for worker in (serving, *workers)]
    figures = latencies(asked)
    if beside.cpu_threads:
        done_per_s = sum(answer["work_per_s"] for answer in (served, *worked))
        figures["work_share"] = done_per_s / alone_per_s
    if served["gil"] is not None:
        figures |= gil_shares(GilReport.decode(served["gil"]), beside.server)
    return Measured(answered_in(window, asked) / seconds, figures)


def work_alone(setting: Setting, seconds: float) -> float:
    """The work per second of one CPU-bound thread that is alone in its process, measured before a
    value that takes `seconds`."""
    alone_s = max(LEAST_ALONE_S, ALONE_SHARE * min(seconds, 1.0))
    with program(setting, "computation", "1") as worker:
        worker.answer()
        worker.measure(Window.after(ALONE_WARM_UP_S, alone_s))
        done_per_s: float = worker.answer()["work_per_s"]
    if not done_per_s:
        raise ProgramError(f"computation.py under {setting.name} got nothing done alone")
    return done_per_s


def processors(cores: str) -> tuple[set[int], set[int]]:
    """The processors of the server and those of its client, of the ones that this process may
    use."""
    usable = sorted(os.sched_getaffinity(0))
    if cores == FREE:
        return set(usable), set(usable)
    # If there are more than two processors, the first and the last are not threads of the same
    # core.
    return {usable[0]}, {usable[-1] if cores == CLIENT_ELSEWHERE else usable[0]}


@contextmanager
def started_on(processors: set[int]) -> Iterator[None]:
    """Limits this process to `processors`. Threads and processes that start meanwhile inherit the
    limit."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def answered_in(window: Window, asked: dict[str, Any]) -> float:
    """The number of requests that the server answered in the window.

    Each request counts with the share of its time inside the window. Requests at both ends of the
    window count as fractions, a request that outlasts the window counts as a small fraction, and
    one that was given up does not count. Because the client asks without a pause, the mean of such
    counts is the true rate times the window, however long a request takes. If requests take as long
    as the window, the counts do not jump by a whole request.
    """
    sent_ns, latencies_ns = asked["first_sent_ns"], asked["latencies_ns"]
    count = 0.0
    for latency_ns in latencies_ns if asked["answered"] else latencies_ns[:-1]:
        received_ns = sent_ns + latency_ns
        inside_ns = min(received_ns, window.end_ns) - max(sent_ns, window.begin_ns)
        count += max(0.0, inside_ns) / latency_ns
        sent_ns = received_ns
    return count


def latencies(asked: dict[str, Any]) -> dict[str, float]:
    ordered = sorted(latency_ns / NS for latency_ns in asked["latencies_ns"])
    return {
        "p50_s": percentile(ordered, 0.5),
        "p99_s": percentile(ordered, 0.99),
        "max_s": ordered[-1],
    }


def gil_shares(report: GilReport, setting: Setting) -> dict[str, float]:
    """The shares of the main GIL's time in the window, from the GIL report of the server. CPU-bound
    threads have what the echo thread and the handoffs leave. While threads compute, no time in
    which the GIL is free is idle, even if no thread was in the queue."""
    if report.policy != setting.policy:
        raise ProgramError(f"the server ran under {report.policy}, not {setting.policy}")
    main = next(gil for gil in report.gils if gil.name == "main")
    rows = report.threads_of(main)
    computed_s = sum(row.held_s for row in rows if row.name.startswith("compute"))
    io_held_share = (main.held_s - computed_s) / main.wall_s
    free_s = main.wall_s - main.held_s if computed_s else main.handoff_s
    handoff_share = free_s / main.wall_s
    return {
        "io_held_share": io_held_share,
        "handoff_share": handoff_share,
        "left_share": 1 - io_held_share - handoff_share,
    }
