"""Notes when each UDP ping is received, beside CPU-bound threads with a workload of ccbench's.

    ping_server.py WORKLOAD CPU_THREADS [SWITCH_INTERVAL_S]

A ping holds the time when it was sent, and by whom; its latency ends when the thread "ping" is back
from recv in Python. A signal then tells the client, who may send the next. An answer by the socket
would drop the GIL, and have the thread wait for it once more, while the next ping is on its way.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

import window
from computation import control
from workloads import WORKLOADS

RECEIVED = signal.SIGUSR1


def receive_pings(server: socket.socket, pings: list[tuple[int, int]]) -> None:
    while True:
        ping = server.recv(64)
        received_ns = time.monotonic_ns()
        sent_ns, sender = map(int, ping.split())
        pings.append((sent_ns, received_ns - sent_ns))
        # kill() keeps the GIL.
        os.kill(sender, RECEIVED)


def main() -> None:
    work, cpu_threads = WORKLOADS[sys.argv[1]], int(sys.argv[2])
    if sys.argv[3:]:
        sys.setswitchinterval(float(sys.argv[3]))
    pings: list[tuple[int, int]] = []
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    threading.Thread(target=receive_pings, args=(server, pings), name="ping", daemon=True).start()
    found = control(cpu_threads, work, port=server.getsockname()[1])
    window.answer(pings=pings, **found)


if __name__ == "__main__":
    main()
