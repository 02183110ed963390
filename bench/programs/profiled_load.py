"""A program that measures itself with and without a contention profile, window by window.

    profiled_load.py compute
    profiled_load.py echo

compute: two threads compute under CPython's rule, so each switch interval of 5 ms ends in a
contended drop: 200 a second. echo: an echo server under `priority`, beside a thread that computes.

It prints the port of the server, or 0, and answers each line, `on SECONDS` or `off SECONDS`, with
the figures of such a window. It ends when its input does.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from computation import Computation

from headway import gil

# The thread of a profile that reads stacks, as the kernel names it.
READER = "headway-stacks"
NS = 1e9


class Echo:
    """An echo server for one connection, which counts its answers."""

    def __init__(self) -> None:
        self.answered = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name="echo", daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while data := connection.recv(4096):
                connection.sendall(data)
                self.answered += len(data)


def reader_cpu_ns() -> int:
    """The CPU time of the thread that reads stacks; 0 if there is none."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == READER:
            return int((task / "schedstat").read_text().split()[0])
    return 0


def measure(seconds: float, computation: Computation, echo: Echo | None) -> Iterator[float]:
    """Yields what the window had: wall and CPU time, calls of the work, answers, contended takes
    and the CPU time of the reader of stacks."""
    takes = sum(row.contended_takes for row in gil.snapshot().report().gils)
    answered = echo.answered if echo else 0
    before = time.monotonic_ns(), time.process_time_ns(), computation.done(), reader_cpu_ns()
    time.sleep(seconds)
    after = time.monotonic_ns(), time.process_time_ns(), computation.done(), reader_cpu_ns()
    yield from (late - early for early, late in zip(before, after, strict=True))
    yield (echo.answered if echo else 0) - answered
    yield sum(row.contended_takes for row in gil.snapshot().report().gils) - takes


def main() -> None:
    is_echo = sys.argv[1] == "echo"
    gil.install("priority" if is_echo else "interval")
    echo = Echo() if is_echo else None
    computation = Computation(1 if is_echo else 2)
    computation.start()
    print(json.dumps({"port": echo.port if echo else 0}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        setting, seconds = line.split()
        profiling = gil.profile()
        if setting == "on":
            profiling.start()
        found = measure(float(seconds), computation, echo)
        wall_ns, cpu_ns, work, reader_ns, answered, drops = found
        if setting == "on":
            profiling.stop()
        wall_s = wall_ns / NS
        print(
            json.dumps(
                {
                    "work_per_s": work / wall_s,
                    "cpu_per_work_s": cpu_ns / NS / max(work, 1),
                    "reader_share": reader_ns / wall_ns,
                    "requests_per_s": answered / wall_s,
                    "contended_drops_per_s": drops / wall_s,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
